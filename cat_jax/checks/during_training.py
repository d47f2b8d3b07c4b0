"""Warnings for a training that has gone wrong, from the numbers of its validations."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from cat_jax import losses
from cat_jax.attacks.callables import as_logits_fn
from cat_jax.intervals import wilson
from cat_jax.types import Array, LogitsFn

PATIENCE = 3  # Validations at chance before a warning.
GAP = 0.2  # Accuracy under FGSM less that under PGD, at which one step explains the defence.
ZERO_SHARE = 0.1
COLLAPSED = 0.05  # A mean mask below this leaves the classifier nothing to defend against.


def zero_gradients(logits_fn: LogitsFn, images: Array, labels: Array) -> Array:
    """The share of images at which the cross-entropy's input gradient is exactly zero.

    In float32 that takes logits about 100 apart, or units that are all dead.

    Args:
      logits_fn: images -> logits [B, K], as for the attacks.
      images: [B, H, W, C] in [0, 1].
      labels: [B].
    """
    pytree, _ = as_logits_fn(logits_fn, images)
    return _zero_gradients(pytree, images, labels)


@jax.jit
def _zero_gradients(logits_fn: LogitsFn, images: Array, labels: Array) -> Array:
    def total(x: Array) -> Array:
        return jnp.sum(losses.cross_entropy(logits_fn(x), labels))

    return jnp.mean(~jnp.any(jax.grad(total)(images), axis=(1, 2, 3)))


def num_answers(logits_fn: LogitsFn, images: Array) -> int:
    """The number of classes that a classifier answers on `images`: 1 if they are all the same."""
    pytree, _ = as_logits_fn(logits_fn, images)
    return len(jnp.unique(_answers(pytree, images)))


@jax.jit
def _answers(logits_fn: LogitsFn, images: Array) -> Array:
    return jnp.argmax(logits_fn(images), axis=-1)


def warnings(
    history: Sequence[Mapping[str, float]],
    *,
    num_examples: int,
    num_classes: int,
    majority: float | None = None,
    adversarial: bool = True,
) -> list[str]:
    """Warnings of the newest validation; empty if all is well.

    Args:
      history: of each validation so far, "natural", "robust" (PGD), "fgsm", "zero_gradients" and
        "mask": accuracies, and shares. And "answers", the number of classes answered, if it was
        counted.
      num_examples: number of images that were validated on.
      num_classes: K.
      majority: share of the most frequent class among them; 1 / K if it is not given.
      adversarial: False for plain training, whose low robust accuracy is no news.
    """
    now, messages = history[-1], []
    chance = max(1 / num_classes, majority or 0.0)

    def at_chance(validation: Mapping[str, float], name: str = "robust") -> bool:
        right = round(validation[name] * num_examples)
        return wilson(right, num_examples)[0] <= chance

    if _is_constant(now, 1.5 / num_classes if majority is None else chance, num_examples):
        messages.append(
            "The classifier answers one class for every image (accuracy "
            f"{now['natural']:.1%}): no attack changes that, and it is not learning. "
            "Try a smaller config.attack.epsilon or learning rate."
        )
    elif adversarial and len(history) >= PATIENCE and all(map(at_chance, history[-PATIENCE:])):
        messages.append(
            f"Accuracy under attack, {now['robust']:.1%}, has not left chance "
            f"({chance:.1%}) for {PATIENCE} validations: the classifier is not learning. "
            "Try a smaller config.attack.epsilon or learning rate; with weight perturbation, a "
            "smaller config.awp.gamma or a later config.awp.warmup_epochs."
        )
    if not adversarial:
        return messages
    return messages + _of_attacks(now)


def _is_constant(now: Mapping[str, float], chance: float, num_examples: int) -> bool:
    """Does the classifier answer one class? Without a count: does no attack change an answer?"""
    if "answers" in now:
        return now["answers"] == 1
    right = round(now["natural"] * num_examples)
    is_moved = len({now["natural"], now["robust"], now["fgsm"]}) > 1
    return not is_moved and wilson(right, num_examples)[0] <= chance


def _of_attacks(now: Mapping[str, float]) -> list[str]:
    messages = []
    if now["fgsm"] - now["robust"] > GAP and now["robust"] < now["fgsm"] / 2:
        messages.append(
            f"Accuracy is {now['fgsm']:.1%} under FGSM but {now['robust']:.1%} under PGD: "
            "catastrophic overfitting, a defence against a single step only. Go back to best/, and "
            "attack in more steps (config.attack.num_steps) of smaller size."
        )
    if now["zero_gradients"] > ZERO_SHARE:
        messages.append(
            f"At {now['zero_gradients']:.1%} of the validation images the input gradient is "
            "exactly zero: logits have grown until cross-entropy is flat, so that attacks by its "
            "gradient see nothing, and accuracies under them mean little. Try a smaller learning "
            "rate or more weight decay."
        )
    if now["mask"] < COLLAPSED:
        messages.append(
            f"The mean of M is {now['mask']:.3f}: the mask hides the attack, so that training is "
            "hardly adversarial; a smaller config.method.beta1 keeps it open."
        )
    return messages
