"""The steps of FAB: the shortest step from a point to a plane within the pixel range."""

import jax.numpy as jnp
from jax import lax

from cat_jax.attacks.arguments import PixelRange
from cat_jax.types import Array


def plane_step(
    point: Array, normal: Array, height: Array, pixel_range: PixelRange, norm: str = "linf"
) -> Array:
    r"""The shortest step in `norm` to a plane that stays within the pixel range; exact.

    In L-infinity, every pixel moves towards the plane by the same length L, in L2 by L |w_i|, but
    at most to the edge of its range. Pixel i has room r_i, so L solves
    sum_i |w_i| min(L, r_i) = |height|, or in L2 sum_i w_i^2 min(L, r_i / |w_i|) = |height|.
    The sum is the minimum of n lines in L. The k-th line has the k pixels with the least room at
    their edges. So L is the largest of the lengths at which those lines reach |height|.
    In L1, the pixels with the largest |w_i| move to their edges first.

    Args:
      point: pixels of one example, of any shape.
      normal: w, shaped as `point`.
      height: scalar, <w, point> minus the offset of the plane.
      pixel_range: as for `fab_t`.
      norm: "linf", "l2" or "l1".

    Returns:
      The step, shaped as `point`. If the plane is outside the range, the step leads to the farthest
      corner. Pixels with a normal of 0 do not move.
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
        # Because squares of tiny weights underflow, divides by the largest weight.
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
    """Solves sum(weight * min(L, room)) = rise for L; infinite if there is no solution."""
    room, weight = lax.sort((room, weight), num_keys=1)
    gained = jnp.cumsum(jnp.where(weight > 0, weight * room, 0.0))
    before = jnp.concatenate([jnp.zeros_like(gained[:1]), gained[:-1]])
    free = jnp.cumsum(weight[::-1])[::-1]
    lengths = jnp.where(free > 0, (rise - before) / jnp.where(free > 0, free, 1.0), 0.0)
    return jnp.where(gained[-1] < rise, jnp.inf, jnp.max(lengths))


def _steepest_first(weight: Array, room: Array, rise: Array) -> Array:
    """The moves with the smallest sum and sum(weight * move) = rise: largest weights first."""
    order = jnp.argsort(-weight)
    weight, room = weight[order], room[order]
    gained = jnp.cumsum(jnp.where(weight > 0, weight * room, 0.0))
    before = jnp.concatenate([jnp.zeros_like(gained[:1]), gained[:-1]])
    rest = jnp.maximum(rise - before, 0.0) / jnp.where(weight > 0, weight, 1.0)
    return jnp.zeros_like(room).at[order].set(jnp.minimum(rest, room))
