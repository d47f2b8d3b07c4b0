"""Optimizers, with their learning rates."""

from collections.abc import Callable

import jax
import optax
from ml_collections import ConfigDict

from cat_jax import data
from cat_jax.experiment import schedules
from cat_jax.types import PyTree

DECAYED: dict[str, Callable[[PyTree], PyTree] | None] = {
    "all": None,
    "kernels": lambda params: jax.tree.map(lambda leaf: leaf.ndim > 1, params),
}


def build_optimizer(
    settings: ConfigDict, clock: data.Clock, num_epochs: int, section: str = "optimizer"
) -> tuple[optax.GradientTransformation, optax.Schedule]:
    """The optimizer, and its schedule: step -> learning rate.

    As in PyTorch, the gradient is clipped first, and weight decay is coupled: it enters the
    gradient before momentum. Errors name the section of the config.
    """
    rate = schedules.learning_rate(settings, clock, num_epochs, section)
    if settings.name == "adam":
        tx = optax.adam(rate)
    else:
        tx = optax.sgd(rate, momentum=settings.momentum or None, nesterov=settings.nesterov)
    decay = optax.add_decayed_weights(settings.weight_decay, DECAYED[settings.decay])
    clipped = [optax.clip_by_global_norm(settings.max_norm)] if settings.max_norm else []
    return optax.chain(*clipped, decay, tx), rate
