"""Convolution, on the CPU with gradients that are themselves plain forward convolutions or dots.

XLA:CPU calls a library only for convolutions in canonical dimension order (NHWC, HWIO).
The input gradient that JAX derives is not in it, and runs as a naive loop nest inside
`fori_loop`, where every attack computes it; the weight gradient is slow outside too.
Elsewhere XLA has its own ways with convolutions, and gets them as JAX derives them.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import lax
from jax.nn.initializers import Initializer

from cat_jax.networks import initializers
from cat_jax.networks._cpu import winograd
from cat_jax.types import Array

FEW = 4  # Channels: up to so many, an image rather than a feature map.
# Channels: from so many on, sparing products is worth the sums that it costs, in a convolution and
# in the gradient of its kernel, whose other forms are slower.
MANY, SOME = 128, 32


def _convolve(
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
def conv(images: Array, kernel: Array, stride: int, padding: int) -> Array:
    """Cross-correlation of images [B, H, W, C] with kernel [h, h, C, O]; reverse mode only."""

    def plain(images: Array, kernel: Array) -> Array:
        return _convolve(images, kernel, stride, _pads(padding))

    size, _, channels, _ = kernel.shape
    on_cpu: Callable[[Array, Array], Array]
    if _has_sparing_form(images.shape, kernel, stride, padding, MANY):
        on_cpu = winograd.convolve
    elif size == 1 or (stride > 1 and channels >= 2 * MANY):
        on_cpu = functools.partial(_dot_patches, stride=stride, padding=padding)
    else:
        return plain(images, kernel)
    return lax.platform_dependent(images, kernel, cpu=on_cpu, default=plain)


def _conv_fwd(
    images: Array, kernel: Array, stride: int, padding: int
) -> tuple[Array, tuple[Array, Array]]:
    return conv(images, kernel, stride, padding), (images, kernel)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _conv_bwd(
    stride: int, padding: int, saved: tuple[Array, Array], grad: Array
) -> tuple[Array, Array]:
    """Both gradients; on the CPU each in the form that measured fastest there."""

    def derived(images: Array, kernel: Array, grad: Array) -> tuple[Array, Array]:
        pads = _pads(padding)
        _, vjp = jax.vjp(lambda i, k: _convolve(i, k, stride, pads), images, kernel)
        return vjp(grad)

    def on_cpu(images: Array, kernel: Array, grad: Array) -> tuple[Array, Array]:
        size, _, channels, _ = kernel.shape
        if stride > 1 or channels <= FEW:
            images_grad = _scatter_patches(grad, kernel, images.shape, stride, padding)
        elif _has_sparing_form(images.shape, kernel, stride, padding, MANY):
            images_grad = winograd.convolve(grad, kernel, turned=True)
        else:
            images_grad = _convolve_flipped(grad, kernel, images.shape, padding)
        if stride > 1 or size == 1:
            return images_grad, _correlate(images, grad, kernel.shape, stride, padding)
        if _has_sparing_form(images.shape, kernel, stride, padding, SOME):
            return images_grad, winograd.correlate(images, grad)
        return images_grad, _convolve_batch(images, grad, padding)

    return lax.platform_dependent(*saved, grad, cpu=on_cpu, default=derived)


def _has_sparing_form(
    shape: tuple[int, ...], kernel: Array, stride: int, padding: int, least: int
) -> bool:
    """Whether `winograd` does it, and faster if that takes `least` channels."""
    size, _, *channels = kernel.shape
    even = shape[1] % 2 == shape[2] % 2 == 0
    precise = kernel.dtype.itemsize >= 4
    return (size, stride, padding) == (3, 1, 1) and even and precise and min(channels) >= least


def _dot_patches(images: Array, kernel: Array, stride: int, padding: int) -> Array:
    """The convolution as one dot with what each of the kernel's positions sees."""
    size, _, _, features = kernel.shape
    padded = jnp.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    rows, columns = ((n - size) // stride + 1 for n in padded.shape[1:3])
    seen = [_seen(padded, i, j, rows, columns, stride) for i, j in np.ndindex(size, size)]
    return jnp.concatenate(seen, -1) @ kernel.reshape(-1, features)


def _seen(padded: Array, i: int, j: int, rows: int, columns: int, stride: int) -> Array:
    """What position i, j of a kernel sees: [B, rows, columns, C]."""
    batch, _, _, channels = padded.shape
    stop = (batch, i + (rows - 1) * stride + 1, j + (columns - 1) * stride + 1, channels)
    return lax.slice(padded, (0, i, j, 0), stop, (1, stride, stride, 1))


def _convolve_flipped(grad: Array, kernel: Array, shape: tuple[int, ...], padding: int) -> Array:
    """Input gradient at stride 1: a forward convolution with the kernel turned round."""
    low = kernel.shape[0] - 1 - padding
    excess = [grad.shape[axis] - shape[axis] for axis in (1, 2)]
    flipped = kernel[::-1, ::-1].swapaxes(2, 3)
    return _convolve(grad, flipped, 1, [(low, padding - e) for e in excess])


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
    return total[:, padding : height - padding, padding : width - padding]


def _convolve_batch(images: Array, grad: Array, padding: int) -> Array:
    """Kernel gradient at stride 1: channels [C, H, W, B] convolved with `grad` [H', W', B, O]."""
    found = _convolve(images.transpose(3, 1, 2, 0), grad.transpose(1, 2, 0, 3), 1, _pads(padding))
    return found.transpose(1, 2, 0, 3)


def _correlate(
    images: Array, grad: Array, shape: tuple[int, ...], stride: int, padding: int
) -> Array:
    """Kernel gradient: for each position of the kernel, one dot over batch and pixels."""
    padded = jnp.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    _, rows, columns, features = grad.shape
    grad = grad.reshape(-1, features)

    def at(i: int, j: int) -> Array:
        return _seen(padded, i, j, rows, columns, stride).reshape(-1, shape[2]).T @ grad

    return jnp.stack([at(i, j) for i, j in np.ndindex(shape[0], shape[1])]).reshape(shape)


conv.defvjp(_conv_fwd, _conv_bwd)


def conv_upsampled(images: Array, kernel: Array, factor: int) -> Array:
    """`conv` at stride 1 of images upsampled to their nearest neighbours; float32 at least.

    [B, H, W, C] with [h, h, C, O] -> [B, factor * H, factor * W, O], zeros around. Where a pixel
    is repeated, so are its products with the kernel: they are made before.
    """
    size, _, channels, features = kernel.shape
    dtype = jnp.promote_types(images.dtype, jnp.float32)
    of_channels = kernel.transpose(2, 0, 1, 3).reshape(channels, -1)
    products = jnp.matmul(images, of_channels, preferred_element_type=dtype)
    products = products.repeat(factor, 1).repeat(factor, 2)
    _, height, width, _ = products.shape
    around = (size // 2, size // 2)
    products = jnp.pad(products, ((0, 0), around, around, (0, 0)))

    def of_place(n: int, i: int, j: int) -> Array:
        return products[:, i : i + height, j : j + width, n * features : (n + 1) * features]

    places = enumerate(np.ndindex(size, size))
    return functools.reduce(jnp.add, (of_place(n, *place) for n, place in places))


class Conv(nn.Module):
    """Square convolution, by default initialised as PyTorch's; parameters as Linen's.

    It computes in the dtype of its images.

    Padding is explicit and symmetric, (size - 1) / 2: "SAME" would pad (0, 1) at stride 2.
    With `upsampling`, at stride 1, it sees each pixel so many times along both sides.
    """

    features: int
    size: int = 3
    stride: int = 1
    upsampling: int = 1
    use_bias: bool = False
    kernel_init: Initializer = initializers.kernel_init

    @nn.compact
    def __call__(self, images: Array) -> Array:
        """[B, H, W, C] -> [B, H', W', features], sides times `upsampling`, over `stride`."""
        shape = (self.size, self.size, images.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape)
        kernel = kernel.astype(images.dtype)
        if self.upsampling > 1:
            output = conv_upsampled(images, kernel, self.upsampling)
        else:
            output = conv(images, kernel, self.stride, self.size // 2)
        if self.use_bias:
            bias = self.param(
                "bias", initializers.uniform_bias(shape[0] * shape[1] * shape[2]), shape[-1:]
            )
            output += bias.astype(output.dtype).reshape(1, 1, 1, -1)
        return output
