"""Searches for thresholds: XLA:CPU takes ten times as long to sort the pixels of an image."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from cat_jax.types import Array


def largest_float(holds: Callable[[Array], Array], dtype: Any) -> Array:
    """The largest x >= 0 for which `holds(x)`; 0 if it holds nowhere, NaN if for NaN too.

    Floats that are not negative have the order of their bits, so this decides one bit after the
    other, the highest first.

    Args:
      holds: scalar of `dtype` -> scalar bool, true up to some x and false above it.
      dtype: of x.
    """
    width = jnp.finfo(dtype).bits
    one = jnp.ones((), f"uint{width}")

    def decide(k: Array, bits: Array) -> Array:
        trial = bits | one << (width - 2 - k).astype(one.dtype)
        return jnp.where(holds(lax.bitcast_convert_type(trial, dtype)), trial, bits)

    # The highest bit is the sign.
    bits = lax.fori_loop(0, width - 1, decide, jnp.zeros_like(one))
    return lax.bitcast_convert_type(bits, dtype)


def fill_largest_first(priority: Array, capacity: Array, total: Array) -> Array:
    """Distributes `total` over entries: those with the largest priority first, each up to capacity.

    Args:
      priority: not negative, [n]. Of equal entries, the first are filled first.
      capacity: not negative, [n]; may be infinite.
      total: scalar.

    Returns:
      The amounts, [n]. Their sum is `total`, or that of all capacities if it is smaller.
    """
    capacity = jnp.minimum(capacity, total)

    def suffices(threshold: Array) -> Array:
        return jnp.sum(jnp.where(priority >= threshold, capacity, 0.0)) >= total

    threshold = largest_float(suffices, priority.dtype)
    full = jnp.where(priority > threshold, capacity, 0.0)
    tied = jnp.where(priority == threshold, capacity, 0.0)
    used = jnp.sum(full) + jnp.cumsum(tied) - tied
    return full + jnp.clip(total - used, 0.0, tied)
