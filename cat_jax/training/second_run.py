"""Computes some steps twice, to find a device whose arithmetic is not reliable."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from cat_jax.errors import UsageError
from cat_jax.step.state import TrainState
from cat_jax.step.train_step import Batch, Metrics, StepFn
from cat_jax.types import Array, PyTree


def compute_twice(
    step_fn: StepFn, state: TrainState, batch: Batch, key: Array, step: int
) -> tuple[TrainState, Metrics]:
    """Returns `step_fn(state, batch, key)`, if a second computation gives the same bits.

    Args:
      step_fn: training step, which may donate its state.
      state, batch, key: its arguments.
      step: number of the step, for the error.

    Raises:
      UsageError: naming the devices whose results differ.
    """
    copy = jax.tree.map(jnp.copy, state)
    first, second = step_fn(state, batch, key), step_fn(copy, batch, key)
    if devices := different_devices(first, second):
        names = ", ".join(f"{device.device_kind} {device.id}" for device in devices)
        raise UsageError(
            f"Step {step} was computed twice, with other bits the second time, on {names}. "
            "Checkpoints keep earlier steps. GPUs repeat their results only with --deterministic; "
            "if that is set, take this device out of service, or after all devices have exchanged "
            "gradients, one of these."
        )
    return first


def different_devices(first: PyTree, second: PyTree) -> list[jax.Device]:
    """This process's devices on which two trees of arrays differ in a bit."""
    pairs: dict[jax.Device, list[tuple[Array, Array]]] = {}
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        others = {shard.device: shard.data for shard in b.addressable_shards}
        for shard in a.addressable_shards:
            pairs.setdefault(shard.device, []).append((shard.data, others[shard.device]))
    equal = {device: _are_equal(arrays) for device, arrays in pairs.items()}
    return [device for device, is_equal in equal.items() if not is_equal]


@jax.jit
def _are_equal(pairs: list[tuple[Array, Array]]) -> Array:
    """Whether the arrays of each pair have the same bits; computed on their device."""
    return jnp.all(jnp.stack([jnp.array_equal(_bits(a), _bits(b)) for a, b in pairs]))


def _bits(x: Any) -> Array:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.asarray(x)
    return lax.bitcast_convert_type(x, jnp.dtype(f"uint{8 * x.dtype.itemsize}"))
