"""A training step that skips updates that are not finite."""

import jax
import jax.numpy as jnp

from cat_jax.step.state import TrainState
from cat_jax.step.train_step import Batch, Metrics, StepFn
from cat_jax.types import Array, PyTree


def skip_non_finite(train_step: StepFn) -> StepFn:
    """Wraps a step so that an update with a non-finite loss or parameter is discarded.

    Only `state.step` changes then, so the next step gets the next batch and its noise; learning
    rates count updates and lag one step behind. The metric "skipped" is 1 for such a step, else 0.

    State and metrics are equal on all devices, so all devices skip the same steps.
    """

    def step(state: TrainState, batch: Batch, key: Array) -> tuple[TrainState, Metrics]:
        new, metrics = train_step(state, batch, key)
        finite = all_finite((new, metrics))
        old = state.replace(step=new.step)
        result = jax.tree.map(lambda after, before: jnp.where(finite, after, before), new, old)
        return result, metrics | {"skipped": 1.0 - finite}

    return step


def all_finite(tree: PyTree) -> Array:
    """Whether every number in the tree is finite."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))
