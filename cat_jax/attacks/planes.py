"""The steps of FAB: the shortest step from a point to a plane within the pixel range."""

import jax.numpy as jnp
from jax import lax

from cat_jax.attacks.arguments import PixelRange
from cat_jax.attacks.thresholds import fill_largest_first
from cat_jax.types import Array


def plane_step(
    point: Array, normal: Array, height: Array, pixel_range: PixelRange, norm: str = "linf"
) -> Array:
    r"""The shortest step in `norm` to a plane that stays within the pixel range; exact.

    In L-infinity, every pixel moves towards the plane by the same length L, in L2 by L |w_i|, but
    at most to the edge of its range. Pixel i has room r_i, so L solves
    sum_i |w_i| min(L, r_i) = |height|, or in L2 sum_i w_i^2 min(L, r_i / |w_i|) = |height|.
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
    """Solves sum(weight * min(L, room)) = rise for L; infinite if there is no solution.

    Newton's method from L = 0. The sum is concave in L, so no step leads beyond the solution, and a
    step that brings no further pixel to its edge ends there.
    """
    full = jnp.where(weight > 0, weight * room, 0.0)

    def tangent_solution(length: Array) -> Array:
        at_edge = room <= length
        free = jnp.sum(jnp.where(at_edge, 0.0, weight))
        rest = rise - jnp.sum(jnp.where(at_edge, full, 0.0))
        return jnp.where(free > 0, rest / jnp.where(free > 0, free, 1.0), length)

    def has_grown(lengths: tuple[Array, Array]) -> Array:
        return lengths[1] > lengths[0]

    def extend(lengths: tuple[Array, Array]) -> tuple[Array, Array]:
        return lengths[1], jnp.maximum(lengths[1], tangent_solution(lengths[1]))

    zero = jnp.zeros_like(rise)
    _, length = lax.while_loop(has_grown, extend, (zero - 1.0, zero))
    return jnp.where(jnp.sum(full) < rise, jnp.inf, length)


def _steepest_first(weight: Array, room: Array, rise: Array) -> Array:
    """The moves with the smallest sum and sum(weight * move) = rise: largest weights first."""
    divisor = jnp.where(weight > 0, weight, 1.0)
    full = jnp.where(weight > 0, weight * room, 0.0)
    return jnp.minimum(fill_largest_first(weight, full, rise) / divisor, room)
