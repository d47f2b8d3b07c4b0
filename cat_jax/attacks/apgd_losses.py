"""The losses that AutoAttack's APGD ascends, beside cross-entropy."""

import logging

import jax.numpy as jnp

from cat_jax import losses
from cat_jax.types import Array, Views

logger = logging.getLogger(__name__)


def adversarial_logit_ratio(logits: Views, labels: Array) -> Array:
    """DLR of x' (Croce & Hein 2020). For two classes it warns and returns the margin."""
    if logits.adversarial.shape[-1] >= 3:
        return losses.logit_ratio(logits.adversarial, labels)
    logger.warning("DLR needs three classes and got two: the margin takes its place.")
    return losses.margin(logits.adversarial, labels)


def targeted_loss(logits: Array, labels: Array, targets: Array) -> Array:
    """The loss that `apgd_t` ascends: targeted DLR, for two or three classes a margin.

    Args:
      logits: [B, K].
      labels: true classes, integers [B].
      targets: wrong classes, integers [B].

    Returns:
      [B]
    """
    if (num_classes := logits.shape[-1]) >= 4:
        return losses.targeted_logit_ratio(logits, labels, targets)
    logger.warning(
        "Targeted DLR needs four classes and got %d: the margin of target and true class takes "
        "its place.",
        num_classes,
    )
    of_target, of_true = (jnp.take_along_axis(logits, c[:, None], -1) for c in (targets, labels))
    return (of_target - of_true)[:, 0]
