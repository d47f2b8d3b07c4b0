"""3x3 convolution with 4 products an output instead of 9 (Lavin and Gray 2016, F(2x2, 3x3)).

Two outputs in a row of four inputs d take four products of sums of d with sums of the weights
g: m = (d0 - d2) g0, (d1 + d2) (g0 + g1 + g2) / 2, (d2 - d1) (g0 - g1 + g2) / 2, (d1 - d3) g2
give m0 + m1 + m2 and m1 - m2 - m3. Rows and columns in turn, that makes sixteen products, and
of all channels at once sixteen products of matrices. It rounds as little as the direct sum.
"""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax

from cat_jax.types import Array

LINE = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
OF_KERNEL = np.kron(LINE, LINE)  # [16, 9].
Grid = Sequence[Sequence[Array]]


def convolve(images: Array, kernel: Array, *, turned: bool = False) -> Array:
    """[B, H, W, C] with [3, 3, C, O] -> [B, H, W, O], zeros around; H and W are even.

    Args:
      images: float32 or more: the sums need the digits.
      kernel: of the convolution.
      turned: use it upside down and from O to C, as the gradient of the inputs does.
    """
    batch, height, width, channels = images.shape
    rows, columns = height // 2, width // 2
    padded = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    pairs = padded.reshape(batch, rows + 1, 2, columns + 1, 2, channels)

    def at(i: int, j: int) -> Array:
        """Pixel (i, j) of every tile of 4x4; tiles overlap by half."""
        (down, i), (right, j) = divmod(i, 2), divmod(j, 2)
        tile = pairs[:, down : down + rows, i, right : right + columns, j]
        return tile.reshape(-1, channels)

    tiles = _each_way(_of_images, [[at(i, j) for j in range(4)] for i in range(4)])
    # A kernel upside down has the same sums in another order: what meets them is put in it.
    order = (3, 1, 2, 0) if turned else (0, 1, 2, 3)
    met = jnp.stack([tiles[i][j] for i in order for j in order])
    weights = jnp.asarray(OF_KERNEL, kernel.dtype) @ kernel.reshape(9, -1)
    weights = weights.reshape(16, *kernel.shape[2:])
    products = lax.dot_general(met, weights, (((2,), (2 if turned else 1,)), ((0,), (0,))))
    products = products.reshape(4, 4, batch, rows, columns, -1)
    outputs = _each_way(_of_outputs, [[products[i, j] for j in order] for i in order])
    pixels = jnp.stack([jnp.stack(row, axis=3) for row in outputs], axis=2)
    return pixels.reshape(batch, height, width, -1)


def _of_images(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, ...]:
    return a - c, b + c, c - b, b - d


def _of_outputs(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, ...]:
    return a + b + c, b - c - d


def _each_way(function: Callable[..., tuple[Array, ...]], grid: Grid) -> Grid:
    """`function` of the grid's columns, then of the rows of what that gave."""
    columns = [function(*column) for column in zip(*grid, strict=True)]
    return [function(*row) for row in zip(*columns, strict=True)]
