"""Training images on the device: pixels to [0, 1], and random crops and flips.

Randomness belongs to the example: each has its own key, so the result does not depend on the
batch or the device that the example happens to be in.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from cat_jax.errors import UsageError
from cat_jax.types import Array

# (keys [B], images [B, H, W, C] in [0, 1]) -> images of the same shape.
Augment = Callable[[Array, Array], Array]

PAD_MODES = ("reflect", "constant")


def to_unit(images: Array) -> Array:
    """Images on the [0, 1] scale, of the shape given.

    Args:
      images: uint8 in 0..255, which become float32 / 255; or floats, which are returned unchanged.

    Raises:
      UsageError: for any other dtype, whose scale is unknown.
    """
    images = jnp.asarray(images)
    if jnp.issubdtype(images.dtype, jnp.floating):
        return images
    if images.dtype != jnp.uint8:
        raise UsageError(
            f"Images are {images.dtype}; expected uint8 in 0..255 or floats in [0, 1]."
        )
    return images.astype(jnp.float32) / 255


def unchanged(keys: Array, images: Array) -> Array:
    """The images, unchanged: the `Augment` of data sets that are trained on without any."""
    del keys
    return images


def crop_flip(keys: Array, images: Array, padding: int = 4, mode: str = "reflect") -> Array:
    """Each image padded, cropped at random to its size, and mirrored with probability 1/2.

    Args:
      keys: one key for each example, [B].
      images: [B, H, W, C], float.
      padding: pixels added on each side; the crop's offsets are uniform in 0..2 * padding.
      mode: "reflect" mirrors at the border pixel as `np.pad` does; "constant" adds 0.

    Returns:
      Images of the same shape and dtype.

    Raises:
      UsageError: if `mode` is unknown, or an image is too small to be reflected that far.
    """
    if mode not in PAD_MODES:
        raise UsageError(f"Padding {mode!r} is unknown; available: {', '.join(PAD_MODES)}.")
    height, width = images.shape[1:3]
    if not 0 <= padding < min(height, width):
        raise UsageError(
            f"Cannot pad images of {height}x{width} by {padding} pixels; "
            f"padding must be 0 to {min(height, width) - 1}."
        )
    edges = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    padded = jnp.pad(images, edges, mode=mode)
    crop = functools.partial(_crop_flip_one, shape=images.shape[1:])
    return jax.vmap(crop)(keys, padded)


def _crop_flip_one(key: Array, padded: Array, shape: tuple[int, ...]) -> Array:
    """One image [H, W, C] out of its padded form [H + 2p, W + 2p, C]."""
    crop_key, flip_key = jax.random.split(key)
    num_offsets = padded.shape[0] - shape[0] + 1
    top, left = jax.random.randint(crop_key, (2,), 0, num_offsets)
    image = jax.lax.dynamic_slice(padded, (top, left, 0), shape)
    return jnp.where(jax.random.bernoulli(flip_key), image[:, ::-1], image)
