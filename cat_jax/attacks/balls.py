"""The balls of the three norms: lengths, steepest steps, projections and uniform noise."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cat_jax.attacks.arguments import PixelRange
from cat_jax.attacks.starts import per_example_keys, uniform_noise
from cat_jax.attacks.thresholds import fill_largest_first, largest_float
from cat_jax.types import Array, per_image

MIN_SHARE = 0.01  # A step in L1 moves at least this share of the entries that can move.


class Ball(NamedTuple):
    """A norm's ball around each image, [B, H, W, C].

    Attributes:
      length: images -> norm of each image, [B, 1, 1, 1].
      step: (gradient, candidate, length, pixel range) -> the step of that length with the largest
        increase of the loss. Entries whose gradient is not finite do not move. In L1, such a step
        would move a single entry. Instead, the 1 % of the entries with the largest gradients share
        it, among those that the pixel range lets move (Tramer & Boneh 2019).
      project: (candidate, images, epsilon, pixel range) -> the nearest point within epsilon of
        images; in L1 the nearest one that is also within the pixel range.
      noise: (key, images) -> uniform draws from the ball of radius 1, each from the key of its
        example.
    """

    length: Callable[[Array], Array]
    step: Callable[[Array, Array, Array | float, PixelRange], Array]
    project: Callable[[Array, Array, Array | float, PixelRange], Array]
    noise: Callable[[Array, Array], Array]


def _largest(images: Array) -> Array:
    return jnp.max(jnp.abs(images), axis=(1, 2, 3), keepdims=True)


def l2_norm(images: Array) -> Array:
    """The Euclidean norm of each image, [B, H, W, C] -> [B, 1, 1, 1]."""
    return jnp.sqrt(jnp.sum(jnp.square(images), axis=(1, 2, 3), keepdims=True))


def _l1_norm(images: Array) -> Array:
    return jnp.sum(jnp.abs(images), axis=(1, 2, 3), keepdims=True)


def finite(gradient: Array) -> Array:
    """`gradient` with 0 for its NaN and infinite entries, which have no direction."""
    return jnp.where(jnp.isfinite(gradient), gradient, 0.0)


def _sign(gradient: Array) -> Array:
    return jnp.sign(finite(gradient))


def sparse_sign(gradient: Array, share: Array | float) -> Array:
    """Signs of the entries with the largest magnitudes, divided by their number: L1 norm 1.

    Args:
      gradient: [B, H, W, C].
      share: share of the entries that are not 0, at least one entry; or one for each example, [B].
    """
    gradient = finite(gradient)
    size = gradient[0].size
    kept = jnp.clip(jnp.broadcast_to(share, len(gradient)) * size, 1, size).astype(jnp.int32)
    magnitudes = jnp.abs(gradient)

    def least_kept(magnitudes: Array, kept: Array) -> Array:
        return largest_float(lambda least: jnp.sum(magnitudes >= least) >= kept, magnitudes.dtype)

    least = jax.vmap(least_kept)(magnitudes, kept)
    signs = jnp.where(magnitudes >= per_image(least), jnp.sign(gradient), 0.0)
    return signs / jnp.maximum(_l1_norm(signs), 1.0)


def _filled(
    gradient: Array, candidate: Array, length: Array | float, pixel_range: PixelRange
) -> Array:
    """Moves the entries with the largest gradients first, each at most by its part of the 1 %."""
    gradient = finite(gradient)
    total = jnp.broadcast_to(jnp.asarray(length, candidate.dtype), (len(candidate), 1, 1, 1))
    room = jnp.broadcast_to(total / max(MIN_SHARE * candidate[0].size, 1.0), candidate.shape)
    if pixel_range is not None:
        low, high = pixel_range
        edge = jnp.where(gradient > 0, high - candidate, candidate - low)
        room = jnp.clip(edge, 0.0, room)
    room = jnp.where(gradient == 0, 0.0, room)

    priority, room = (x.reshape(len(candidate), -1) for x in (jnp.abs(gradient), room))
    moves = jax.vmap(fill_largest_first)(priority, room, total[:, 0, 0, 0])
    return jnp.sign(gradient) * moves.reshape(candidate.shape)


def _clip(
    candidate: Array, images: Array, epsilon: Array | float, pixel_range: PixelRange
) -> Array:
    del pixel_range
    return jnp.clip(candidate, images - epsilon, images + epsilon)


def _unit(gradient: Array) -> Array:
    """The gradient divided by its norm, or 0 for a gradient of 0.

    It divides by the largest entry first, because squares of tiny entries underflow.
    """
    gradient = finite(gradient)
    largest = jnp.max(jnp.abs(gradient), axis=(1, 2, 3), keepdims=True)
    scaled = gradient / jnp.where(largest > 0, largest, 1.0)
    return scaled / jnp.maximum(l2_norm(scaled), 1.0)  # Because the norm is 0, or at least 1.


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
    """The nearest point of the intersection of ball and pixel range (Croce & Hein 2021, Prop. 2.1).

    It shortens all entries by one length, and each to the edge of its pixel range.
    """
    delta = candidate - images
    length = room = jnp.abs(delta)
    if pixel_range is not None:
        low, high = pixel_range
        room = jnp.clip(jnp.where(delta > 0, high - images, images - low), 0.0, length)
    radius = jnp.broadcast_to(jnp.asarray(epsilon, images.dtype), (len(images), 1, 1, 1))
    cut = jax.vmap(_common_cut)(length, room, radius[:, 0, 0, 0])
    shortened = jnp.sign(delta) * jnp.clip(length - per_image(cut), 0.0, room)
    total = _l1_norm(shortened)  # Exceeds the radius only by rounding.
    return images + shortened * jnp.minimum(1.0, radius / jnp.where(total > 0, total, 1.0))


def _common_cut(length: Array, room: Array, radius: Array) -> Array:
    """The largest cut with sum(clip(length - cut, 0, room)) > radius; 0 if there is none."""

    def is_too_long(cut: Array) -> Array:
        left = length - cut
        # Not jnp.clip, with which XLA:CPU takes 20 times as long for the sum.
        return jnp.sum(jnp.where(left > room, room, jnp.where(left > 0, left, 0.0))) > radius

    return largest_float(is_too_long, length.dtype)


def _l2_noise(key: Array, images: Array) -> Array:
    """Uniform in the ball: the direction of a normal draw, at the radius U^(1/n)."""
    shape, dtype = images.shape[1:], images.dtype
    pairs = jax.vmap(jax.random.split)(per_example_keys(key, len(images)))
    direction = _unit(jax.vmap(lambda k: jax.random.normal(k, shape, dtype))(pairs[:, 0]))
    share = jax.vmap(lambda k: jax.random.uniform(k, (), dtype))(pairs[:, 1])
    return direction * per_image(share ** (1 / images[0].size))


def _l1_noise(key: Array, images: Array) -> Array:
    """Uniform in the ball: n of n + 1 exponential draws over their sum, with random signs."""
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
