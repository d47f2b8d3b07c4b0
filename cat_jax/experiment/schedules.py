"""Numbers that change with the step: learning rate, warm-up, the average of the weights."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from ml_collections import ConfigDict

from cat_jax import data
from cat_jax.errors import UsageError
from cat_jax.types import Schedule


def warmup(clock: data.Clock, epochs: float) -> Schedule:
    """A factor that grows in proportion over the first `epochs`, and then is 1.

    The first step has a small factor, not 0; with 0 epochs the factor is always 1.
    """
    if not epochs:
        return lambda step: 1.0
    return lambda step: jnp.minimum(clock.epochs_after(step) / epochs, 1.0)


def learning_rate(
    settings: ConfigDict, clock: data.Clock, num_epochs: int, section: str
) -> Schedule:
    """The learning rate of one optimizer, whose section of the config errors name.

    Raises:
      UsageError: if drop_factors do not fit drop_epochs, or the warm-up is not shorter than the
        run.
    """
    if settings.warmup_epochs >= num_epochs:
        raise UsageError(
            f"config.{section}.warmup_epochs is {settings.warmup_epochs:g}; expected less than "
            f"config.num_epochs, {num_epochs}."
        )
    of_epoch = _of_epoch(settings, num_epochs, section)
    at = clock.epoch_of if settings.per == "epoch" else clock.epochs_after
    factor = warmup(clock, settings.warmup_epochs)

    def rate(step: Any) -> Any:
        # One scalar for all weights: without a barrier XLA computes it again for each weight.
        return lax.optimization_barrier(factor(step) * of_epoch(at(step)))

    return rate


def _of_epoch(settings: ConfigDict, num_epochs: int, section: str) -> Schedule:
    """The rate without its warm-up as a function of the epoch, which may be fractional."""
    peak = settings.learning_rate
    if settings.schedule == "cosine":
        start = settings.warmup_epochs
        decay = optax.cosine_decay_schedule(peak, num_epochs - start)
        return lambda epoch: decay(jnp.maximum(epoch - start, 0))
    if settings.schedule == "cyclic":
        ends = np.array([0.0, 0.4 * num_epochs, num_epochs])
        return lambda epoch: jnp.interp(epoch, ends, np.array([0.0, peak, 0.0]))
    epochs, factors = settings.drop_epochs, settings.drop_factors
    if len(factors) not in (1, len(epochs)):
        raise UsageError(
            f"config.{section}.drop_factors has {len(factors)} values for {len(epochs)} "
            "drop_epochs; expected one for all drops, or one for each."
        )
    factors = factors * len(epochs) if len(factors) == 1 else factors
    return optax.piecewise_constant_schedule(peak, dict(zip(epochs, factors, strict=True)))


def average(settings: ConfigDict, clock: data.Clock) -> Schedule | None:
    """Share of the old average that remains after a step; None: the run averages no weights.

    Before its start the average equals the classifier. "moving" is the exponential average.
    "equal" is stochastic weight averaging (Izmailov et al. 2018): the mean of the weights at the
    ends of epochs, and the classifier until the first end.
    """
    start = clock.steps_until(settings.start_epochs)
    if settings.kind == "none":
        return None
    if settings.kind == "equal":

        def kept(step: Any) -> Any:
            ends = clock.epoch_of(step + 1) - settings.start_epochs
            is_end = clock.epoch_of(step + 1) > clock.epoch_of(step)
            return jnp.where(ends <= 0, 0.0, jnp.where(is_end, 1 - 1 / jnp.maximum(ends, 1), 1.0))

        return kept

    def decay(step: Any) -> Any:
        updates = step - start
        limit = (1 + updates) / (10 + updates) if settings.warmup else 1.0
        return jnp.where(updates < 0, 0.0, jnp.minimum(settings.decay, limit))

    return decay
