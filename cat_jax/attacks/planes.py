"""Steps from a point to a plane, least in a norm, that stay within the pixel range: FAB's steps."""

import jax.numpy as jnp
from jax import lax

from cat_jax.attacks.arguments import PixelRange
from cat_jax.types import Array


def plane_step(
    point: Array, normal: Array, height: Array, pixel_range: PixelRange, norm: str = "linf"
) -> Array:
    r"""The step to a plane that is least in `norm` and stays within the pixel range; exact.

    In max-norm every pixel goes by the same length L towards the plane, in L2 by L |w_i|, or up to
    the edge of its range if that is nearer. Pixel i has room r_i, so L solves
    sum_i |w_i| min(L, r_i) = |height|, or in L2 sum_i w_i^2 min(L, r_i / |w_i|) = |height|.
    The sum is the least of n lines in L, each with the k pixels of least room at their edges:
    so L is the greatest of the lengths at which those lines meet |height|, and needs no search.
    In L1 the pixels of the largest |w_i| go to their edges first.

    Args:
      point: of any shape, n pixels, of one example.
      normal: w, shaped as `point`.
      height: <w, point> minus the plane's offset, a scalar.
      pixel_range: as for `fab_t`.
      norm: "linf", "l2" or "l1".

    Returns:
      The step, shaped as `point`. To the farthest corner of the range if the plane lies beyond it;
      0 where the normal is, so nowhere if all of it is.
    """
    weight, towards = jnp.abs(normal), -jnp.sign(height) * jnp.sign(normal)
    room = jnp.full_like(point, jnp.inf)
    if pixel_range is not None:
        low, high = pixel_range
        room = jnp.maximum(jnp.where(towards > 0, high - point, point - low), 0.0)
    if norm == "linf":
        length = _common_length(weight.ravel(), room.ravel(), jnp.abs(height))
        step = jnp.minimum(length, room)
    elif norm == "l2":
        # Scaled by the largest weight: squares of tiny ones vanish.
        largest = jnp.max(weight)
        scale = jnp.where(largest > 0, largest, 1.0)
        weight = weight / scale
        steepness = jnp.where(weight > 0, weight, 1.0)
        rooms = jnp.where(weight > 0, room / steepness, jnp.inf)
        rise = jnp.abs(height) / scale
        length = _common_length(jnp.square(weight).ravel(), rooms.ravel(), rise)
        step = jnp.where(length < rooms, length * weight, room)
    else:
        step = _steepest_first(weight.ravel(), room.ravel(), jnp.abs(height)).reshape(room.shape)
    return jnp.where(weight > 0, towards * step, 0.0)


def _common_length(weight: Array, room: Array, rise: Array) -> Array:
    """L of `plane_step`: sum(weight * min(L, room)) = rise; infinite if no L reaches that."""
    room, weight = lax.sort((room, weight), num_keys=1)
    gained = jnp.cumsum(jnp.where(weight > 0, weight * room, 0.0))
    before = jnp.concatenate([jnp.zeros_like(gained[:1]), gained[:-1]])
    free = jnp.cumsum(weight[::-1])[::-1]
    lengths = jnp.where(free > 0, (rise - before) / jnp.where(free > 0, free, 1.0), 0.0)
    return jnp.where(gained[-1] < rise, jnp.inf, jnp.max(lengths))


def _steepest_first(weight: Array, room: Array, rise: Array) -> Array:
    """Moves of least sum with sum(weight * move) = rise: up to their rooms, in falling weight."""
    order = jnp.argsort(-weight)
    weight, room = weight[order], room[order]
    gained = jnp.cumsum(jnp.where(weight > 0, weight * room, 0.0))
    before = jnp.concatenate([jnp.zeros_like(gained[:1]), gained[:-1]])
    rest = jnp.maximum(rise - before, 0.0) / jnp.where(weight > 0, weight, 1.0)
    return jnp.zeros_like(room).at[order].set(jnp.minimum(rest, room))
