"""Optimizers and their learning rates."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from ml_collections import ConfigDict

from cat_jax import data
from cat_jax.errors import UsageError
from cat_jax.types import PyTree, Schedule

DECAYED: dict[str, Callable[[PyTree], PyTree] | None] = {
    "all": None,
    "kernels": lambda params: jax.tree.map(lambda leaf: leaf.ndim > 1, params),
}


def build_optimizer(
    settings: ConfigDict, clock: data.Clock, num_epochs: int
) -> tuple[optax.GradientTransformation, optax.Schedule]:
    """The optimizer, and its schedule: step -> learning rate.

    Weight decay is coupled, as in PyTorch: it enters the gradient before momentum.
    """
    of_epoch = _rate(settings, num_epochs)
    at = clock.epoch_of if settings.per == "epoch" else clock.epochs_after

    def rate(step: Any) -> Any:
        # One scalar for all weights: without a barrier XLA computes it again for each weight.
        return lax.optimization_barrier(of_epoch(at(step)))

    if settings.name == "adam":
        tx = optax.adam(rate)
    else:
        tx = optax.sgd(rate, momentum=settings.momentum or None)
    decay = optax.add_decayed_weights(settings.weight_decay, DECAYED[settings.decay])
    return optax.chain(decay, tx), rate


def _rate(settings: ConfigDict, num_epochs: int) -> Schedule:
    """Learning rate as a function of the epoch, which may be fractional."""
    peak = settings.learning_rate
    if settings.schedule == "cosine":
        return optax.cosine_decay_schedule(peak, num_epochs)
    if settings.schedule == "cyclic":
        ends = np.array([0.0, 0.4 * num_epochs, num_epochs])
        return lambda epoch: jnp.interp(epoch, ends, np.array([0.0, peak, 0.0]))
    epochs, factors = settings.drop_epochs, settings.drop_factors
    if len(factors) not in (1, len(epochs)):
        raise UsageError(
            f"optimizer.drop_factors has {len(factors)} values for {len(epochs)} drop_epochs; "
            "expected one for all drops, or one for each."
        )
    factors = factors * len(epochs) if len(factors) == 1 else factors
    return optax.piecewise_constant_schedule(peak, dict(zip(epochs, factors, strict=True)))
