"""3x3 convolutions with fewer than 9 products for an output (Lavin and Gray 2016).

`convolve` and `correlate` need 4, F(2x2, 3x3). Two neighbouring outputs of four inputs d need four
products of sums of d with sums of the weights g: m = (d0 - d2) g0, (d1 + d2) (g0 + g1 + g2) / 2,
(d2 - d1) (g0 - g1 + g2) / 2, (d1 - d3) g2 give m0 + m1 + m2 and m1 - m2 - m3. Applied to rows and
then to columns, this gives sixteen products, or for all channels sixteen matrix products. It rounds
up to 1.4 times as much as the direct sum.

`convolve_rows` needs 4.5, F(4, 3) applied to rows alone: four outputs of six inputs need six
products, each of them a convolution along the width. It reads and writes less, which decides where
channels are few.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from cat_jax.types import Array

# Sum k of four inputs d is d[FIRST[k]] + SIGN[k] d[SECOND[k]].
FIRST, SECOND, SIGN = np.array([[0, 1, 2, 1], [2, 2, 1, 3], [-1, 1, -1, -1]])
OF_WEIGHTS = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
OF_KERNEL = np.kron(OF_WEIGHTS, OF_WEIGHTS)  # [16, 9].
OF_OUTPUTS = np.array([[1, 0], [1, 1], [1, -1], [0, -1]])  # Signs of product k in both outputs.
# F(4, 3) at the points 0, infinity, and these with both signs rounds 1.4 to 2.2 times as much as
# the direct sum, whose own rounding depends on the processor. With the usual points, 1 and 2, it
# rounds half as much again.
POINTS = 0.5**0.5, 2**0.5
OF_THREE_WEIGHTS = np.array(
    [
        [1, 0, 0],
        *(
            np.array([1, sign * p, p**2]) / (2 * p**2 * (p**2 - 1 / p**2))
            for p in POINTS
            for sign in (1, -1)
        ),
        [0, 0, 1],
    ]
)


def convolve(images: Array, kernel: Array, *, turned: bool = False) -> Array:
    """Convolves [B, H, W, C] with [3, 3, C, O] to [B, H, W, O], zero-padded; H and W are even.

    Args:
      images: float32 or float64, because sums lose precision.
      kernel: weights of the convolution.
      turned: rotate the kernel by 180 degrees and swap C and O, for the gradient of the inputs.
    """
    batch, height, width, _ = images.shape
    rows, columns = height // 2, width // 2
    # A rotated kernel has the same sums in another order, which sums of images follow.
    order = (3, 1, 2, 0) if turned else (0, 1, 2, 3)
    weights = jnp.asarray(OF_KERNEL, kernel.dtype) @ kernel.reshape(9, -1)
    weights = weights.reshape(16, *kernel.shape[2:])
    contracted = ((2,), (2 if turned else 1,))
    sums = _for_each_product(_sums(images), _lines(order, images.dtype))
    products = lax.dot_general(sums, weights, (contracted, ((0,), (0,))))
    products = products.reshape(4, 4, batch, rows, columns, -1)

    def pair(products: Array) -> tuple[Array, Array]:
        """The two outputs of four products along one axis."""
        a, b, c, d = (products[k] for k in order)
        return a + b + c, b - c - d

    pixels = jnp.stack([jnp.stack(pair(row), axis=3) for row in pair(products)], axis=2)
    # The barrier keeps XLA from splitting the outputs into four images for sums of batch norm.
    return lax.optimization_barrier(pixels.reshape(batch, height, width, -1))


def convolve_rows(images: Array, kernel: Array, *, turned: bool = False) -> Array:
    """`convolve` for few channels, and images of any sides."""
    if turned:
        kernel = kernel[::-1, ::-1].swapaxes(2, 3)
    batch, height, width, channels = images.shape
    weights = jnp.einsum("ki,ijco->kjco", jnp.asarray(OF_THREE_WEIGHTS, kernel.dtype), kernel)
    num_fours = -(-height // 4)
    below = 4 * num_fours - height + 3
    padded = jnp.pad(images, ((0, 0), (1, below), (0, 0), (0, 0)))
    fours = padded.reshape(batch, num_fours + 1, 4, width, channels)
    # Six rows for each four outputs, [B, H / 4, W, C] each. The last two are shared with the next.
    d0, d1, d2, d3 = (fours[:, :-1, k] for k in range(4))
    d4, d5 = fours[:, 1:, 0], fours[:, 1:, 1]
    sums = [d0 - 2.5 * d2 + d4]
    for p in POINTS:
        even, odd = d4 - d2 / p**2, p * (d3 - d1 / p**2)
        sums += [even + odd, even - odd]
    sums.append(d1 - 2.5 * d3 + d5)

    def product(k: int) -> Array:
        pads, order = ((0, 0), (1, 1)), ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            sums[k], weights[k : k + 1], (1, 1), pads, dimension_numbers=order
        )

    first, *pairs, last = (product(k) for k in range(6))
    rows = [first, jnp.zeros_like(first), jnp.zeros_like(first), last]
    for p, plus, minus in zip(POINTS, pairs[::2], pairs[1::2], strict=True):
        even, odd = plus + minus, plus - minus
        rows = [row + p**k * (odd if k % 2 else even) for k, row in enumerate(rows)]
    pixels = jnp.stack(rows, axis=2).reshape(batch, 4 * num_fours, width, -1)[:, :height]
    return lax.optimization_barrier(pixels)  # As in `convolve`.


def correlate(images: Array, grad: Array) -> Array:
    """The gradient of the kernel of `convolve`: [B, H, W, C] with [B, H, W, O] -> [3, 3, C, O]."""
    batch, height, width, features = grad.shape
    pairs = grad.reshape(batch, height // 2, 2, width // 2, 2, features)
    sum_of = _sums(images)

    def product(lines: Any) -> Array:
        of_images, (of_rows, of_columns) = lines
        # Adds four terms at once, because separate sums over rows took 1.5 times as long.
        places = ((i, j) for i in range(2) for j in range(2))
        of_grad = sum(of_rows[i] * of_columns[j] * pairs[:, :, i, :, j] for i, j in places)
        return sum_of(of_images).T @ of_grad.reshape(-1, features)

    of_grad = [jnp.asarray(k, grad.dtype) for k in _each_with_each(OF_OUTPUTS)]
    sums = _for_each_product(product, (_lines(range(4), images.dtype), of_grad))
    kernel_grad = jnp.asarray(OF_KERNEL.T, grad.dtype) @ sums.reshape(16, -1)
    return kernel_grad.reshape(3, 3, -1, features)


def _sums(images: Array) -> Callable[[Any], Array]:
    """The sums of a product over 4x4 tiles, which overlap by half: two `_lines` -> [tiles, C]."""
    batch, height, width, channels = images.shape
    rows, columns = height // 2, width // 2
    padded = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    pairs = padded.reshape(batch, rows + 1, 2, columns + 1, 2, channels)
    zero = np.uint32(0)

    def pixel(i: Array, j: Array) -> Array:
        """The pixel at row i and column j of every tile; an index is (pair, position in it)."""
        start = (zero, i[0], i[1], j[0], j[1], zero)
        tiles = lax.dynamic_slice(pairs, start, (batch, rows, 1, columns, 1, channels))
        return tiles.reshape(-1, channels)

    def sum_of(lines: Any) -> Array:
        (up, down, sign), (left, right, sign_of_right) = lines
        halves = [pixel(up, j) + sign * pixel(down, j) for j in (left, right)]
        return halves[0] + sign_of_right * halves[1]

    return sum_of


def _lines(order: Sequence[int], dtype: Any) -> tuple[Any, Any]:
    """The rows and the columns that `_sums` adds for each product, [16, ...] each."""

    def lines(k: np.ndarray) -> tuple[Array, Array, Array]:
        # Unsigned, because XLA would test signed indices for negative values.
        first, second = (
            jnp.asarray(np.stack(np.divmod(place[k], 2), axis=1), jnp.uint32)
            for place in (FIRST, SECOND)
        )
        return first, second, jnp.asarray(SIGN[k], dtype)

    rows, columns = (lines(k) for k in _each_with_each(np.asarray(order)))
    return rows, columns


def _each_with_each(of_four: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Items of four for the rows and for the columns of sixteen products, in row-major order."""
    return np.repeat(of_four, 4, axis=0), np.concatenate([of_four] * 4)


def _for_each_product(function: Callable[[Any], Array], lines: Any) -> Array:
    """Results for all products, [16, ...], in a loop, which compiles in half the time."""
    return lax.scan(lambda _, line: (None, function(line)), None, lines)[1]
