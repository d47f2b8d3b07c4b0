"""Proposals of Square in L2 and L1 balls: windows with two hills of opposite signs."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cat_jax.attacks.arguments import PixelRange
from cat_jax.attacks.ascent import project
from cat_jax.types import Array

TINY = 1e-12  # Because a window without perturbation has norm 0.
MIN_SIDE = 3
NUM_TILES = 5  # Windows along a side of the image at the start.
POWERS = {"l2": 2, "l1": 4}  # Exponents of the fall of a hill from its middle.


class Ball(NamedTuple):
    """The ball around one image that proposals stay in.

    Attributes:
      image: natural image [H, W, C].
      epsilon: radius, a scalar.
      pixel_range: as for `square`.
      norm: "l2" or "l1".
    """

    image: Array
    epsilon: Array | float
    pixel_range: PixelRange
    norm: str

    def nearest(self, delta: Array) -> Array:
        """Moves image + delta into the ball and the pixel range, in L2 to the surface first."""
        if self.norm == "l2":
            length = jnp.maximum(_norm(delta, "l2", (0, 1, 2)), TINY)
            delta = delta * (self.epsilon / length)
        candidate = (self.image + delta)[None]
        return project(candidate, self.image[None], self.epsilon, self.pixel_range, self.norm)[0]


def odd_sides(sides: Sequence[int], height: int, width: int) -> list[int]:
    """Window sides as odd numbers of at least three pixels, or the side of a smaller image."""
    raised = (max(side, MIN_SIDE) for side in sides)
    return [min(side + 1 - side % 2, height, width) for side in raised]


@functools.cache
def hill(rows: int, columns: int, power: int) -> np.ndarray:
    """A pyramid of terraces, [rows, columns]; the k-th from the middle adds 1 / k ** power."""
    middle = rows // 2, columns // 2
    num_terraces = max(middle) + 1
    terraces = 1.0 / np.arange(1, num_terraces + 1) ** power
    heights = np.cumsum(terraces[::-1])[
        ::-1
    ]  # Because a pixel is on its terrace and all wider ones.
    row, column = (np.abs(np.arange(n) - m) for n, m in zip((rows, columns), middle, strict=True))
    return heights[np.maximum(row[:, None], column[None, :])]


@functools.cache
def two_hills(side: int, norm: str) -> np.ndarray:
    """A hill above a valley with equal norms, scaled to norm 1, [side, side]."""
    order = int(norm[1])
    halves = []
    for rows, sign in ((side // 2, 1.0), (side - side // 2, -1.0)):
        half = hill(rows, side, POWERS[norm])
        length = np.sum(np.abs(half) ** order) ** (1 / order) if rows else 1.0
        halves.append(sign * half / length)
    window = np.concatenate(halves)
    return window / np.sum(np.abs(window) ** order) ** (1 / order)


def start(key: Array, ball: Ball) -> Array:
    """The start: tiles with two hills and random signs, at the surface of the ball, [H, W, C]."""
    height, width, channels = ball.image.shape
    side = max(min(height, width) // NUM_TILES, 1)
    rows, columns = height // side, width // side
    of_sign, of_turn = jax.random.split(key)
    signs = jax.random.rademacher(of_sign, (rows, columns, 1, 1, channels), ball.image.dtype)
    turned = jax.random.bernoulli(of_turn, 0.5, (rows, columns, 1, 1))
    window = jnp.asarray(two_hills(side, ball.norm), ball.image.dtype)
    tiles = jnp.where(turned, window.T, window)[..., None] * signs
    delta = tiles.transpose(0, 2, 1, 3, 4).reshape(rows * side, columns * side, channels)
    top, left = (height - rows * side) // 2, (width - columns * side) // 2
    bottom, right = height - rows * side - top, width - columns * side - left
    return ball.nearest(jnp.pad(delta, ((top, bottom), (left, right), (0, 0))))


def windows(sides: Sequence[int], shape: tuple[int, ...], norm: str) -> np.ndarray:
    """Windows of all sides in the upper left corner, upright and transposed, [sides, 2, H, W]."""
    table = np.zeros((len(sides), 2, *shape[:2]))
    for row, side in zip(table, sides, strict=True):
        row[0, :side, :side] = two_hills(side, norm)
        row[1, :side, :side] = two_hills(side, norm).T
    return table


def propose(key: Array, point: Array, ball: Ball, pair: Array, side: Array) -> Array:
    """Adds two hills to one window, with the norm of that window and of a second one.

    The second window becomes zero.

    Args:
      key: one key.
      point: [H, W, C], the best point so far.
      ball: ball that holds the proposal.
      pair: window of that side in the corner, upright and transposed, [2, H, W].
      side: side of the windows in pixels; may be traced.
    """
    height, width, channels = point.shape
    of_place, of_sign, of_turn = jax.random.split(key, 3)
    most = jnp.stack([height - side, width - side] * 2) + 1
    places = jax.random.randint(of_place, (4,), 0, most)
    corner = (jnp.arange(height) < side)[:, None] & (jnp.arange(width) < side)[None, :]
    target, source = (jnp.roll(corner, p, (0, 1))[..., None] for p in (places[:2], places[2:]))
    delta = point - ball.image
    signs = jax.random.rademacher(of_sign, (1, 1, channels), point.dtype)
    turned = jax.random.bernoulli(of_turn).astype(jnp.int32)
    fresh = jnp.roll(pair[turned], places[:2], (0, 1))[..., None] * signs
    old = jnp.where(target, delta, 0.0)
    moved = fresh + old / (TINY + _norm(old, ball.norm))
    moved = moved / (TINY + _norm(moved, ball.norm)) * _budget(delta, target | source, ball)
    return ball.nearest(jnp.where(target, moved, jnp.where(source, 0.0, delta)))


def _budget(delta: Array, inside: Array, ball: Ball) -> Array:
    """Norm of the new window, [1, 1, C]: that of both windows, plus the unused part of epsilon."""
    channels = delta.shape[-1]
    own = _norm(jnp.where(inside, delta, 0.0), ball.norm)
    length = _norm(delta, ball.norm, (0, 1, 2))
    if ball.norm == "l2":
        left = jnp.maximum(ball.epsilon**2 - length**2, 0.0) / channels
        return jnp.sqrt(left + own**2)
    left = jnp.maximum(ball.epsilon - length, 0.0) / channels
    return (left + own) * channels


def _norm(delta: Array, norm: str, axes: tuple[int, ...] = (0, 1)) -> Array:
    if norm == "l2":
        return jnp.sqrt(jnp.sum(jnp.square(delta), axes, keepdims=True))
    return jnp.sum(jnp.abs(delta), axes, keepdims=True)
