"""Convolution whose gradients are, on the CPU, plain forward convolutions or dots.

XLA:CPU calls its library only for convolutions in canonical dimension order (NHWC, HWIO). The
input gradient that JAX derives has another order, so XLA:CPU compiles it to a naive loop nest
inside `fori_loop`, where every attack computes it; the weight gradient is slow outside too. On
GPU and TPU XLA handles the gradients that JAX derives well, so they are used there.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from cat_jax.networks._cpu import winograd
from cat_jax.types import Array

# Images have at most this many channels, feature maps more.
MAX_IMAGE_CHANNELS = 4
# From this many channels on, Winograd's fewer products outweigh the sums that they need: along both
# sides, and along the height alone or in the gradient of the kernel.
MIN_WINOGRAD_CHANNELS, MIN_WINOGRAD_CHANNELS_OF_ROWS = 256, 32
# From this many channels on, one dot over patches is faster than a strided convolution.
MIN_STRIDED_DOT_CHANNELS = 256


def _forward(
    images: Array, kernel: Array, stride: int, padding: Sequence[tuple[int, int]]
) -> Array:
    """[B, H, W, C] with [h, w, C, O] -> [B, H', W', O], in canonical order."""
    return lax.conv_general_dilated(
        images, kernel, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _pads(padding: int) -> Sequence[tuple[int, int]]:
    return ((padding, padding),) * 2


# Jitted, both directions are traced once for all layers that are alike.
@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
@functools.partial(jax.jit, static_argnums=(2, 3))
def convolve(images: Array, kernel: Array, stride: int, padding: int) -> Array:
    """Cross-correlation of images with a square kernel; differentiable in reverse mode only.

    Args:
      images: float [B, H, W, C].
      kernel: [h, h, C, O], of the images' dtype.
      stride: step between outputs, along both sides.
      padding: zeros added on each of the four sides.

    Returns:
      [B, H', W', O] with H' = (H + 2 padding - h) // stride + 1.
    """

    chex.assert_rank((images, kernel), 4)
    chex.assert_axis_dimension(kernel, 2, images.shape[3])

    def plain(images: Array, kernel: Array) -> Array:
        return _forward(images, kernel, stride, _pads(padding))

    size, _, channels, _ = kernel.shape
    on_cpu: Callable[[Array, Array], Array]
    if _folds(images.shape, size, stride, padding):
        on_cpu = functools.partial(_convolve_folded, stride=stride, padding=padding)
    elif sparing := _with_fewer_products(images.shape, kernel, stride, padding):
        on_cpu = sparing
    elif size == 1 or (stride > 1 and channels >= MIN_STRIDED_DOT_CHANNELS):
        on_cpu = functools.partial(_dot_patches, stride=stride, padding=padding)
    else:
        return plain(images, kernel)
    return lax.platform_dependent(images, kernel, cpu=on_cpu, default=plain)


def _convolve_fwd(
    images: Array, kernel: Array, stride: int, padding: int
) -> tuple[Array, tuple[Array, Array]]:
    return convolve(images, kernel, stride, padding), (images, kernel)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _convolve_bwd(
    stride: int, padding: int, saved: tuple[Array, Array], grad: Array
) -> tuple[Array, Array]:
    """Both gradients, on the CPU in the forms that were fastest there."""

    def derived(images: Array, kernel: Array, grad: Array) -> tuple[Array, Array]:
        pads = _pads(padding)
        _, vjp = jax.vjp(lambda i, k: _forward(i, k, stride, pads), images, kernel)
        return vjp(grad)

    def on_cpu(images: Array, kernel: Array, grad: Array) -> tuple[Array, Array]:
        size, _, channels, _ = kernel.shape
        if _folds(images.shape, size, stride, padding):
            folded = functools.partial(_convolve_folded, stride=stride, padding=padding)
            return jax.vjp(folded, images, kernel)[1](grad)
        if stride > 1 or channels <= MAX_IMAGE_CHANNELS:
            images_grad = _scatter_patches(grad, kernel, images.shape, stride, padding)
        elif sparing := _with_fewer_products(images.shape, kernel, stride, padding):
            images_grad = sparing(grad, kernel, turned=True)
        else:
            images_grad = _convolve_flipped(grad, kernel, images.shape, padding)
        if stride > 1 or size <= 2:
            return images_grad, _correlate(images, grad, kernel.shape, stride, padding)
        few = MIN_WINOGRAD_CHANNELS_OF_ROWS
        if _suits_winograd(images.shape, kernel, stride, padding, few):
            return images_grad, winograd.correlate(images, grad)
        return images_grad, _convolve_batch(images, grad, padding)

    return lax.platform_dependent(*saved, grad, cpu=on_cpu, default=derived)


def _folds(shape: tuple[int, ...], size: int, stride: int, padding: int) -> bool:
    """Whether a strided convolution can have stride 1, once stride x stride pixels become one."""
    sides = size, shape[1] + 2 * padding, shape[2] + 2 * padding
    return stride > 1 and all(side % stride == 0 for side in sides)


def _convolve_folded(images: Array, kernel: Array, *, stride: int, padding: int) -> Array:
    """The convolution at stride 1, with the channels of stride x stride pixels in one pixel."""

    def fold(images: Array) -> Array:
        batch, height, width, channels = images.shape
        shape = batch, height // stride, stride, width // stride, stride, channels
        return images.reshape(shape).swapaxes(2, 3).reshape(*shape[:2], width // stride, -1)

    padded = jnp.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    kernel = fold(kernel.transpose(3, 0, 1, 2)).transpose(1, 2, 3, 0)
    return convolve(fold(padded), kernel, 1, 0)


def _with_fewer_products(
    shape: tuple[int, ...], kernel: Array, stride: int, padding: int
) -> Callable[..., Array] | None:
    """The form of `winograd` for images of this shape, if one is exact enough and faster."""
    if _suits_winograd(shape, kernel, stride, padding, MIN_WINOGRAD_CHANNELS):
        return winograd.convolve
    if _suits_winograd(shape, kernel, stride, padding, MIN_WINOGRAD_CHANNELS_OF_ROWS):
        return winograd.convolve_rows
    return None


def _suits_winograd(
    shape: tuple[int, ...], kernel: Array, stride: int, padding: int, min_channels: int
) -> bool:
    """Whether `winograd` is exact enough and fast, which requires `min_channels` channels."""
    size, _, *channels = kernel.shape
    even = shape[1] % 2 == shape[2] % 2 == 0
    precise = kernel.dtype.itemsize >= 4
    return (
        (size, stride, padding) == (3, 1, 1) and even and precise and min(channels) >= min_channels
    )


def _dot_patches(images: Array, kernel: Array, stride: int, padding: int) -> Array:
    """The convolution as one dot with the patches under the kernel."""
    size, _, _, features = kernel.shape
    padded = jnp.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    rows, columns = ((n - size) // stride + 1 for n in padded.shape[1:3])
    pixels = [_shifted(padded, i, j, rows, columns, stride) for i, j in np.ndindex(size, size)]
    return jnp.concatenate(pixels, -1) @ kernel.reshape(-1, features)


def _shifted(padded: Array, i: int, j: int, rows: int, columns: int, stride: int) -> Array:
    """Pixels under position i, j of the kernel, for each output: [B, rows, columns, C]."""
    batch, _, _, channels = padded.shape
    stop = (batch, i + (rows - 1) * stride + 1, j + (columns - 1) * stride + 1, channels)
    return lax.slice(padded, (0, i, j, 0), stop, (1, stride, stride, 1))


def _convolve_flipped(grad: Array, kernel: Array, shape: tuple[int, ...], padding: int) -> Array:
    """Input gradient at stride 1: a forward convolution with the rotated kernel."""
    low = kernel.shape[0] - 1 - padding
    excess = [grad.shape[axis] - shape[axis] for axis in (1, 2)]
    flipped = kernel[::-1, ::-1].swapaxes(2, 3)
    return _forward(grad, flipped, 1, [(low, padding - e) for e in excess])


def _scatter_patches(
    grad: Array, kernel: Array, shape: tuple[int, ...], stride: int, padding: int
) -> Array:
    """Input gradient at any stride: one dot, and a shifted sum over the kernel's positions.

    The convolution with zeros between strided neighbours does stride^2 times the work.
    """
    size, _, channels, features = kernel.shape
    patches = grad @ kernel.reshape(-1, features).T  # [B, H', W', size * size * C].
    height, width = (n + 2 * padding for n in shape[1:3])

    def spread(i: int, length: int, outputs: int) -> tuple[int, int, int]:
        return i, length - i - (outputs - 1) * stride - 1, stride - 1

    total: Any = 0
    for position, (i, j) in enumerate(np.ndindex(size, size)):
        patch = patches[..., position * channels : (position + 1) * channels]
        rows, columns = spread(i, height, grad.shape[1]), spread(j, width, grad.shape[2])
        zero = jnp.zeros((), grad.dtype)
        total += lax.pad(patch, zero, ((0, 0, 0), rows, columns, (0, 0, 0)))
    # The barrier keeps XLA from computing the sum again for each of its uses.
    return lax.optimization_barrier(total[:, padding : height - padding, padding : width - padding])


def _convolve_batch(images: Array, grad: Array, padding: int) -> Array:
    """Kernel gradient at stride 1: channels [C, H, W, B] convolved with `grad` [H', W', B, O]."""
    grad = grad.transpose(1, 2, 0, 3)
    kernel_grad = _forward(images.transpose(3, 1, 2, 0), grad, 1, _pads(padding))
    return kernel_grad.transpose(1, 2, 0, 3)


def _correlate(
    images: Array, grad: Array, shape: tuple[int, ...], stride: int, padding: int
) -> Array:
    """Kernel gradient: for each position of the kernel, one dot over batch and pixels."""
    padded = jnp.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    _, rows, columns, features = grad.shape
    grad = grad.reshape(-1, features)

    def at(i: int, j: int) -> Array:
        return _shifted(padded, i, j, rows, columns, stride).reshape(-1, shape[2]).T @ grad

    return jnp.stack([at(i, j) for i, j in np.ndindex(shape[0], shape[1])]).reshape(shape)


convolve.defvjp(_convolve_fwd, _convolve_bwd)
