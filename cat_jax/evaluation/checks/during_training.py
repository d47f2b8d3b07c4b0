"""Warnings about failing training, from the numbers of its validations."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from cat_jax.attacks.callables import as_logits_fn
from cat_jax.evaluation.checks.classifier import input_gradients
from cat_jax.intervals import wilson
from cat_jax.types import Array, LogitsFn

PATIENCE = 3  # Validations at chance before a warning.
MAX_FGSM_GAP = 0.2  # Accuracy under FGSM minus accuracy under PGD.
MAX_ZERO_SHARE = 0.1
MIN_MASK_MEAN = 0.05  # Below this the classifier sees hardly any perturbation.


def zero_gradients(logits_fn: LogitsFn, images: Array, labels: Array) -> Array:
    """The share of images at which the input gradient of the cross-entropy is exactly zero.

    In float32 this happens if logits are about 100 apart or all units are dead.

    Args:
      logits_fn: images -> logits [B, K], as in the attacks.
      images: [B, H, W, C] in [0, 1].
      labels: [B].
    """
    pytree, _ = as_logits_fn(logits_fn, images)
    return _zero_gradients(pytree, images, labels)


@jax.jit
def _zero_gradients(logits_fn: LogitsFn, images: Array, labels: Array) -> Array:
    return jnp.mean(~jnp.any(input_gradients(logits_fn, images, labels), axis=(1, 2, 3)))


def num_answers(logits_fn: LogitsFn, images: Array) -> int:
    """The number of classes that a classifier predicts on `images`; 1 if all are the same."""
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
    warmup_epochs: float = 0.0,
) -> list[str]:
    """Warnings about the newest validation; empty if nothing is wrong.

    Args:
      history: scores of each validation so far: the accuracies "natural", "robust" (PGD) and
        "fgsm", the share "zero_gradients", the mean "mask" and, if counted, "answers", the number
        of predicted classes; with a warm-up also "epoch".
      num_examples: number of validation images.
      num_classes: K.
      majority: share of the most frequent class among them; default: 1 / K.
      adversarial: False for plain training, where low robust accuracy is expected.
      warmup_epochs: epochs in which the radius of training grows. In these, low robust accuracy is
        expected too, because validations attack at the final radius.
    """
    now, messages = history[-1], []
    chance = max(1 / num_classes, majority or 0.0)
    remedy = _remedy(adversarial, warmup_epochs)

    def is_full_radius(validation: Mapping[str, float]) -> bool:
        return validation.get("epoch", warmup_epochs) >= warmup_epochs

    recent = [*filter(is_full_radius, history)][-PATIENCE:]

    def at_chance(validation: Mapping[str, float], name: str = "robust") -> bool:
        right = round(validation[name] * num_examples)
        return wilson(right, num_examples)[0] <= chance

    if _is_constant(now, 1.5 / num_classes if majority is None else chance, num_examples):
        messages.append(
            "The classifier predicts one class for every image (accuracy "
            f"{now['natural']:.1%}): it is not learning, and no attack changes its answers. "
            f"{remedy}."
        )
    elif adversarial and len(recent) == PATIENCE and all(map(at_chance, recent)):
        messages.append(
            f"Accuracy under attack ({now['robust']:.1%}) has been at chance "
            f"({chance:.1%}) for {PATIENCE} validations: the classifier is not learning. "
            f"{remedy}; with weight perturbation, a smaller config.awp.gamma or a later "
            "config.awp.warmup_epochs."
        )
    if not adversarial:
        return messages
    if is_full_radius(now):
        messages += _overfitting(now)
    return messages + _attack_warnings(now)


def _remedy(adversarial: bool, warmup_epochs: float) -> str:
    if not adversarial:
        return "In another workdir, try a smaller learning rate"
    growth = "from 0 (--config.conventions=warmup, or config.attack.warmup_epochs)"
    if warmup_epochs:
        growth = f"for longer than {warmup_epochs:g} epochs (config.attack.warmup_epochs)"
    return (
        f"In another workdir, let the radius grow {growth}, or try a smaller config.attack.epsilon "
        "or learning rate"
    )


def _is_constant(now: Mapping[str, float], chance: float, num_examples: int) -> bool:
    """Whether the classifier predicts one class; without a count, whether no attack matters."""
    if "answers" in now:
        return now["answers"] == 1
    right = round(now["natural"] * num_examples)
    is_moved = len({now["natural"], now["robust"], now["fgsm"]}) > 1
    return not is_moved and wilson(right, num_examples)[0] <= chance


def _overfitting(now: Mapping[str, float]) -> list[str]:
    if now["fgsm"] - now["robust"] <= MAX_FGSM_GAP or now["robust"] >= now["fgsm"] / 2:
        return []
    return [
        f"Accuracy is {now['fgsm']:.1%} under FGSM but {now['robust']:.1%} under PGD: "
        "catastrophic overfitting; the classifier withstands single-step attacks only. Use "
        "best/, and train with more and smaller steps (config.attack.num_steps), with "
        "config.method.grad_align=0.2, or with the variant n_fgsm."
    ]


def _attack_warnings(now: Mapping[str, float]) -> list[str]:
    messages = []
    if now["zero_gradients"] > MAX_ZERO_SHARE:
        messages.append(
            f"At {now['zero_gradients']:.1%} of the validation images the input gradient is "
            "exactly zero: logits are so large that the cross-entropy is flat. Gradient attacks "
            "get no signal, and accuracy under them means little. Try a smaller learning rate or "
            "more weight decay."
        )
    if now["mask"] < MIN_MASK_MEAN:
        messages.append(
            f"The mean of the mask M is {now['mask']:.3f}: the mask removes the perturbation, so "
            "training is hardly adversarial. Try a smaller config.method.beta1."
        )
    return messages
