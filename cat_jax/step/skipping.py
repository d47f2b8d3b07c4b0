"""A training step that leaves out an update which is not finite."""

import jax
import jax.numpy as jnp

from cat_jax.step.state import TrainState
from cat_jax.step.train_step import Batch, Metrics, StepFn
from cat_jax.types import Array, PyTree


def skip_non_finite(train_step: StepFn) -> StepFn:
    """The step, but that its state stays as it was where the new one or a loss is not finite.

    Only `state.step` moves on, so that batches and noise follow as ever; learning rates, which
    count updates, are then a step behind. The metric "skipped" is 1 of such a step, else 0.

    State and metrics are what all devices agree on, so all decide alike.
    """

    def step(state: TrainState, batch: Batch, key: Array) -> tuple[TrainState, Metrics]:
        new, metrics = train_step(state, batch, key)
        finite = all_finite((new, metrics))
        old = state.replace(step=new.step)
        kept = jax.tree.map(lambda after, before: jnp.where(finite, after, before), new, old)
        return kept, metrics | {"skipped": 1.0 - finite}

    return step


def all_finite(tree: PyTree) -> Array:
    """Whether every number in the tree is finite."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))
