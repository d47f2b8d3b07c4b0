"""What Square searches among: corners of the L-infinity ball, or images with hills in L2 and L1."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cat_jax.attacks import square_windows
from cat_jax.attacks.arguments import PixelRange
from cat_jax.attacks.ascent import project
from cat_jax.attacks.square_windows import Ball
from cat_jax.types import Array


class Search(NamedTuple):
    """A search space. A point [B, H, W, C] is what the search stores of each image.

    Attributes:
      images_at: points -> images.
      starts: keys [B] -> points.
      proposals: (keys [B], points, window sides of all periods, period) -> points.
    """

    images_at: Callable[[Array], Array]
    starts: Callable[[Array], Array]
    proposals: Callable[[Array, Array, Array, Array], Array]


def corners(images: Array, epsilon: Array | float, pixel_range: PixelRange) -> Search:
    """The search among corners of the L-infinity ball; points are bool."""
    low, high = (project(images + e, images, epsilon, pixel_range) for e in (-epsilon, epsilon))

    def proposals(keys: Array, points: Array, sides: Array, period: Array) -> Array:
        return jax.vmap(propose, (0, 0, None))(keys, points, sides[period])

    return Search(
        images_at=lambda points: jnp.where(points, high, low),
        starts=jax.vmap(lambda key: stripes(key, images.shape[1:])),
        proposals=proposals,
    )


def hills(
    images: Array, epsilon: Array | float, pixel_range: PixelRange, norm: str, windows: Array
) -> Search:
    """The search in an L2 or L1 ball; points are images."""
    radii = jnp.broadcast_to(jnp.asarray(epsilon, images.dtype), (len(images), 1, 1, 1))[:, 0, 0, 0]
    windows = windows.astype(images.dtype)

    def start(key: Array, image: Array, radius: Array) -> Array:
        return square_windows.start(key, Ball(image, radius, pixel_range, norm))

    def proposals(keys: Array, points: Array, sides: Array, period: Array) -> Array:
        def propose(key: Array, point: Array, image: Array, radius: Array) -> Array:
            ball = Ball(image, radius, pixel_range, norm)
            return square_windows.propose(key, point, ball, windows[period], sides[period])

        return jax.vmap(propose)(keys, points, images, radii)

    return Search(
        images_at=lambda points: points,
        starts=lambda keys: jax.vmap(start)(keys, images, radii),
        proposals=proposals,
    )


def stripes(key: Array, shape: tuple[int, ...]) -> Array:
    """Vertical stripes of random colours, one pixel wide, bool [H, W, C]."""
    return jnp.broadcast_to(jax.random.bits(key, (1, *shape[1:]), jnp.uint32) % 2 == 1, shape)


def propose(key: Array, corner: Array, side: Array | int) -> Array:
    """Gives a random window of one image another colour, which always changes the image.

    The original code draws colours until one changes the window. Only the colour of a window of
    one colour changes nothing, so this draw excludes it. The distribution is the same.

    Args:
      key: one key.
      corner: bool [H, W, C], a corner of the ball; True where a pixel is at its upper end.
      side: side of the window in pixels, at most min(H, W); may be traced.
    """
    height, width, channels = corner.shape
    # Uses one draw for speed. Modulo n, some numbers are likelier by n / 2 ** 31.
    draws = (jax.random.bits(key, (3,), jnp.uint32) >> 1).astype(jnp.int32)
    rows = _span(draws[0] % (height - side + 1), side, height)
    columns = _span(draws[1] % (width - side + 1), side, width)
    window = (rows[:, None] & columns[None, :])[:, :, None]
    highest = jnp.any(window & corner, axis=(0, 1))
    lowest = jnp.all(~window | corner, axis=(0, 1))
    least = jnp.all(highest == lowest).astype(jnp.int32)  # 0 would flip no channel.
    flips = least + draws[2] % (2**channels - least)
    colour = highest ^ ((flips >> jnp.arange(channels)) % 2 == 1)
    return jnp.where(window, colour[None, None, :], corner)


def _span(first: Array, side: Array | int, length: int) -> Array:
    """True at `side` positions from the index `first`, bool [length]."""
    index = jnp.arange(length)
    return (index >= first) & (index < first + side)
