"""What a validation reveals about training that has gone wrong, said as a warning."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from cat_jax import losses
from cat_jax.intervals import wilson
from cat_jax.types import Array, LogitsFn

PATIENCE = 3  # Validations at chance before it is said.
GAP = 0.2  # Accuracy under FGSM less that under PGD, at which one step explains the defence.
ZERO_SHARE = 0.1
COLLAPSED = 0.05  # A mean mask below this leaves the classifier nothing to defend against.


@jax.jit
def zero_gradients(logits_fn: LogitsFn, images: Array, labels: Array) -> Array:
    """The share of images at which the cross-entropy's input gradient is exactly zero.

    In float32 that takes logits about 100 apart, or units that are all dead.

    Args:
      logits_fn: a pytree, such as a `jax.tree_util.Partial`.
      images: [B, H, W, C] in [0, 1].
      labels: [B].
    """

    def total(x: Array) -> Array:
        return jnp.sum(losses.cross_entropy(logits_fn(x), labels))

    return jnp.mean(~jnp.any(jax.grad(total)(images), axis=(1, 2, 3)))


def warnings(
    history: Sequence[Mapping[str, float]], *, num_examples: int, num_classes: int
) -> list[str]:
    """What the newest validation of adversarial training warns of; empty where all is well.

    Args:
      history: of each validation so far, "natural", "robust" (PGD), "fgsm", "zero_gradients"
        and "mask": accuracies, and shares.
      num_examples: that were validated on.
      num_classes: K.
    """
    now, said = history[-1], []

    def at_chance(validation: Mapping[str, float]) -> bool:
        right = round(validation["robust"] * num_examples)
        return wilson(right, num_examples)[0] <= 1 / num_classes

    if len(history) >= PATIENCE and all(map(at_chance, history[-PATIENCE:])):
        said.append(
            f"Accuracy under attack, {now['robust']:.1%}, has not left chance "
            f"(1 in {num_classes}) for {PATIENCE} validations: the classifier is not learning. "
            "Try a smaller config.attack.epsilon or learning rate; with weight perturbation, a "
            "smaller config.awp.gamma or a later config.awp.warmup_epochs."
        )
    if now["fgsm"] - now["robust"] > GAP and now["robust"] < now["fgsm"] / 2:
        said.append(
            f"Accuracy is {now['fgsm']:.1%} under FGSM but {now['robust']:.1%} under PGD: "
            "catastrophic overfitting, a defence against a single step only. Go back to best/, and "
            "attack in more steps (config.attack.num_steps) of smaller size."
        )
    if now["zero_gradients"] > ZERO_SHARE:
        said.append(
            f"At {now['zero_gradients']:.1%} of the validation images the input gradient is "
            "exactly zero: logits have grown until cross-entropy is flat, so that attacks by its "
            "gradient see nothing, and accuracies under them mean little. Try a smaller learning "
            "rate or more weight decay."
        )
    if now["mask"] < COLLAPSED:
        said.append(
            f"The mean of M is {now['mask']:.3f}: the mask hides the attack, so that training is "
            "hardly adversarial; a smaller config.method.beta1 keeps it open."
        )
    return said
