"""The balls of the three norms: which way is steepest, which point is nearest, what is uniform."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cat_jax.attacks.arguments import PixelRange
from cat_jax.attacks.starts import per_example_keys, uniform_noise
from cat_jax.types import Array, per_image

LEAST_SHARE = 0.01  # A step in L1 moves so many of the entries at least, where they can move.


class Ball(NamedTuple):
    """A norm's ball around each image, [B, H, W, C].

    Attributes:
      length: images -> [B, 1, 1, 1], the norm of each.
      step: (gradient, candidate, length, pixel range) -> the step of that length along which the
        loss grows fastest; entries where the gradient is not finite do not move. In L1 that would
        be a single entry. There the largest percent of those that the pixel range lets move share
        the step (Tramer & Boneh 2019).
      project: (candidate, images, epsilon, pixel range) -> a point within epsilon of images: the
        nearest one; in L1 the nearest one within the pixel range too.
      noise: (key, images) -> a uniform draw from the ball of radius 1, each example's from its
        own key.
    """

    length: Callable[[Array], Array]
    step: Callable[[Array, Array, Array | float, PixelRange], Array]
    project: Callable[[Array, Array, Array | float, PixelRange], Array]
    noise: Callable[[Array, Array], Array]


def _largest(images: Array) -> Array:
    return jnp.max(jnp.abs(images), axis=(1, 2, 3), keepdims=True)


def l2_norm(images: Array) -> Array:
    """[B, H, W, C] -> [B, 1, 1, 1]: the Euclidean norm of each image."""
    return jnp.sqrt(jnp.sum(jnp.square(images), axis=(1, 2, 3), keepdims=True))


def _l1_norm(images: Array) -> Array:
    return jnp.sum(jnp.abs(images), axis=(1, 2, 3), keepdims=True)


def finite(gradient: Array) -> Array:
    """`gradient`, with zero for its NaN and infinite entries: they name no direction."""
    return jnp.where(jnp.isfinite(gradient), gradient, 0.0)


def _sign(gradient: Array) -> Array:
    return jnp.sign(finite(gradient))


def sparse_sign(gradient: Array, share: Array | float) -> Array:
    """The signs of the entries of the largest magnitude, divided by their number: of L1 norm 1.

    Args:
      gradient: [B, H, W, C].
      share: part of the entries that are kept, at least one; or one for each example, [B].
    """
    gradient = finite(gradient)
    size = gradient[0].size
    ascending = jnp.sort(jnp.abs(gradient).reshape(len(gradient), -1), axis=-1)
    kept = jnp.clip(jnp.broadcast_to(share, len(gradient)) * size, 1, size).astype(jnp.int32)
    least = jnp.take_along_axis(ascending, (size - kept)[:, None], axis=-1)
    signs = jnp.where(jnp.abs(gradient) >= per_image(least[:, 0]), jnp.sign(gradient), 0.0)
    return signs / jnp.maximum(_l1_norm(signs), 1.0)


def _filled(
    gradient: Array, candidate: Array, length: Array | float, pixel_range: PixelRange
) -> Array:
    """Moves the entries of the largest gradients first: to their edges, or by their part of 1%."""
    gradient = finite(gradient)
    total = jnp.broadcast_to(jnp.asarray(length, candidate.dtype), (len(candidate), 1, 1, 1))
    room = jnp.broadcast_to(total / max(LEAST_SHARE * candidate[0].size, 1.0), candidate.shape)
    if pixel_range is not None:
        low, high = pixel_range
        edge = jnp.where(gradient > 0, high - candidate, candidate - low)
        room = jnp.clip(edge, 0.0, room)
    room = jnp.where(gradient == 0, 0.0, room)

    def fill(gradient: Array, room: Array, total: Array) -> Array:
        order = jnp.argsort(-jnp.abs(gradient))
        used = jnp.cumsum(room[order]) - room[order]
        return jnp.zeros_like(room).at[order].set(jnp.clip(total - used, 0.0, room[order]))

    rows = (value.reshape(len(candidate), -1) for value in (gradient, room, total))
    moves = jax.vmap(fill)(*rows).reshape(candidate.shape)
    return jnp.sign(gradient) * moves


def _clip(
    candidate: Array, images: Array, epsilon: Array | float, pixel_range: PixelRange
) -> Array:
    del pixel_range
    return jnp.clip(candidate, images - epsilon, images + epsilon)


def _unit(gradient: Array) -> Array:
    """Zero where the gradient is. Divides by the largest first: squares of tiny entries vanish."""
    gradient = finite(gradient)
    largest = jnp.max(jnp.abs(gradient), axis=(1, 2, 3), keepdims=True)
    scaled = gradient / jnp.where(largest > 0, largest, 1.0)
    return scaled / jnp.maximum(l2_norm(scaled), 1.0)  # The norm is at least 1, or 0.


def _shorten(
    candidate: Array, images: Array, epsilon: Array | float, pixel_range: PixelRange
) -> Array:
    del pixel_range
    delta = candidate - images
    length = l2_norm(delta)
    return images + delta * jnp.minimum(1.0, epsilon / jnp.where(length > 0, length, 1.0))


def _shrink(
    candidate: Array, images: Array, epsilon: Array | float, pixel_range: PixelRange
) -> Array:
    """Every entry is shortened by one length, to its room at most (Croce & Hein 2021, Prop. 2.1).

    The nearest point of the intersection of ball and pixel range, not of one after the other.
    """
    delta = candidate - images
    length = room = jnp.abs(delta)
    if pixel_range is not None:
        low, high = pixel_range
        room = jnp.clip(jnp.where(delta > 0, high - images, images - low), 0.0, length)
    rows = (len(images), -1)
    radius = jnp.broadcast_to(jnp.asarray(epsilon, images.dtype), (len(images), 1, 1, 1))
    cut = jax.vmap(_common_cut)(length.reshape(rows), room.reshape(rows), radius[:, 0, 0, 0])
    shortened = jnp.sign(delta) * jnp.clip(length - per_image(cut), 0.0, room)
    total = _l1_norm(shortened)  # Above the radius by rounding alone.
    return images + shortened * jnp.minimum(1.0, radius / jnp.where(total > 0, total, 1.0))


def _common_cut(length: Array, room: Array, radius: Array) -> Array:
    """The least cut from 0 on with sum(clip(length - cut, 0, room)) <= radius.

    As the cut falls from the greatest length, an entry begins to count at its length and has no
    room left at length - room: between these points the sum is linear in the cut.
    """
    points = jnp.concatenate([length, length - room])
    changes = jnp.concatenate([jnp.ones_like(length), -jnp.ones_like(length)])
    order = jnp.argsort(-points)
    points, slopes = points[order], jnp.cumsum(changes[order])
    rises = slopes[:-1] * (points[:-1] - points[1:])
    sums = jnp.concatenate([jnp.zeros_like(rises[:1]), jnp.cumsum(rises)])
    first = jnp.sum(sums < radius)  # The first point at which the sum is too large.
    index = jnp.minimum(first, len(points) - 1)
    slope = jnp.maximum(slopes[jnp.maximum(index - 1, 0)], 1.0)
    cut = points[index] + jnp.maximum(sums[index] - radius, 0.0) / slope
    return jnp.where(first == len(points), 0.0, cut)


def _l2_noise(key: Array, images: Array) -> Array:
    """A normal draw has a uniform direction; U^(1/n) is the radius of a uniform point."""
    shape, dtype = images.shape[1:], images.dtype
    pairs = jax.vmap(jax.random.split)(per_example_keys(key, len(images)))
    direction = _unit(jax.vmap(lambda k: jax.random.normal(k, shape, dtype))(pairs[:, 0]))
    share = jax.vmap(lambda k: jax.random.uniform(k, (), dtype))(pairs[:, 1])
    return direction * per_image(share ** (1 / images[0].size))


def _l1_noise(key: Array, images: Array) -> Array:
    """Exponential draws divided by their sum, one more included, are uniform in the simplex."""
    shape, dtype = images.shape[1:], images.dtype

    def draw(key: Array) -> Array:
        of_size, of_sign = jax.random.split(key)
        sizes = jax.random.exponential(of_size, (images[0].size + 1,), dtype)
        signs = jax.random.rademacher(of_sign, shape, dtype)
        return signs * (sizes[1:] / jnp.sum(sizes)).reshape(shape)

    return jax.vmap(draw)(per_example_keys(key, len(images)))


def _of_direction(direction: Callable[[Array], Array]) -> Callable[..., Array]:
    def step(
        gradient: Array, candidate: Array, length: Array | float, pixel_range: PixelRange
    ) -> Array:
        del candidate, pixel_range
        return length * direction(gradient)

    return step


BALLS = {
    "linf": Ball(_largest, _of_direction(_sign), _clip, uniform_noise),
    "l2": Ball(l2_norm, _of_direction(_unit), _shorten, _l2_noise),
    "l1": Ball(_l1_norm, _filled, _shrink, _l1_noise),
}
