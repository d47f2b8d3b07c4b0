"""Training images on the device: pixels to [0, 1], random crops, flips, erasing and mixtures.

Randomness belongs to the example: each has its own key, so the result does not depend on the
batch or the device that the example happens to be in.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from cat_jax.errors import UsageError
from cat_jax.types import Array, MixedLabels

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


def erase(keys: Array, images: Array, probability: float) -> Array:
    """Random erasing (Zhong et al. 2020): sets a rectangle of an image to 0.

    The rectangle has 2% to 33% of the area of the image, and a height of 0.3 to 3.3 times its
    width, uniform in the logarithm; it is cut off at the border of the image.

    Args:
      keys: one key for each example, [B].
      images: [B, H, W, C], float.
      probability: of erasing, for each image.
    """
    height, width = images.shape[1:3]

    def one(key: Array, image: Array) -> Array:
        does, area_key, ratio_key, place = jax.random.split(key, 4)
        area = height * width * jax.random.uniform(area_key, (), minval=0.02, maxval=0.33)
        bound = jnp.log(3.3)
        ratio = jnp.exp(jax.random.uniform(ratio_key, (), minval=-bound, maxval=bound))
        inside = _box(place, (height, width), jnp.sqrt(area * ratio), jnp.sqrt(area / ratio))
        erased = jnp.where(inside[..., None], 0, image)
        return jnp.where(jax.random.bernoulli(does, probability), erased, image)

    return jax.vmap(one)(keys, images)


def cutmix(
    keys: Array, images: Array, labels: Array, probability: float
) -> tuple[Array, MixedLabels]:
    """CutMix (Yun et al. 2019): an image gets a rectangle of its neighbour in the batch.

    Neighbours are 0 and 1, 2 and 3, and so on, so that the result does not depend on the number of
    devices. The area is uniform in [0, 1] before the border cuts it off.

    Args:
      keys: one key for each example, [B].
      images: [B, H, W, C], float.
      labels: [B].
      probability: of a mixture, for each image.

    Returns:
      The images, and both labels with the share of the first.

    Raises:
      UsageError: for an odd B.
    """
    if len(labels) % 2:
        raise UsageError(
            f"config.cutmix pairs the images of a device, which has {len(labels)}; set "
            "config.batch_size to an even number for each device."
        )
    height, width = images.shape[1:3]
    neighbours = jnp.arange(len(labels)) ^ 1

    def box(key: Array) -> Array:
        does, size, place = jax.random.split(key, 3)
        side = jnp.sqrt(jax.random.uniform(size)) * jax.random.bernoulli(does, probability)
        return _box(place, (height, width), side * height, side * width)

    inside = jax.vmap(box)(keys)
    mixed = jnp.where(inside[..., None], images[neighbours], images)
    share = 1 - jnp.mean(inside, axis=(1, 2), dtype=images.dtype)
    return mixed, MixedLabels(labels, labels[neighbours], share)


def _box(key: Array, shape: tuple[int, int], height: Array, width: Array) -> Array:
    """A rectangle, bool [H, W], around a uniform pixel; the border cuts it off."""
    centre = jax.random.uniform(key, (2,)) * jnp.array(shape)

    def inside(axis: int, length: Array) -> Array:
        start = jnp.round(centre[axis] - length / 2)
        places = jnp.arange(shape[axis])
        return (places >= start) & (places < start + jnp.round(length))

    return inside(0, height)[:, None] & inside(1, width)[None]


def _crop_flip_one(key: Array, padded: Array, shape: tuple[int, ...]) -> Array:
    """One image [H, W, C] out of its padded form [H + 2p, W + 2p, C]."""
    crop_key, flip_key = jax.random.split(key)
    num_offsets = padded.shape[0] - shape[0] + 1
    top, left = jax.random.randint(crop_key, (2,), 0, num_offsets)
    image = jax.lax.dynamic_slice(padded, (top, left, 0), shape)
    return jnp.where(jax.random.bernoulli(flip_key), image[:, ::-1], image)
