"""Corrupted images at five severities: noise, blur, light, pixels and JPEG.

They are our own, and not the files of CIFAR-10-C: kinds and strengths follow Hendrycks &
Dietterich (2019) for 32x32 images, the code and the noise do not. Numbers are comparable within
cat_jax only.
"""

import functools
import io
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import ndimage

from cat_jax.data.augment import to_unit
from cat_jax.errors import UsageError, check_choice
from cat_jax.types import Array

SEVERITIES = (1, 2, 3, 4, 5)
PART = 1000  # Images that are corrupted at a time, so that a data set needs little memory.
RADIUS = 4  # Of blurs, in pixels; beyond it their weights are below 0.001.
JPEG = "jpeg"
JPEG_QUALITY = (80, 65, 58, 50, 40)
Corruption = Callable[[Array, Array, Array], Array]  # (image [H, W, C], key, strength) -> image.


def corrupt(images: Any, kind: str, severity: int, keys: Array) -> np.ndarray:
    """Corrupts images, and rounds them to 8 bits, as in a file.

    Args:
      images: [N, H, W, C], uint8, or floats in [0, 1].
      kind: a key of `CORRUPTIONS`, or "jpeg".
      severity: 1 to 5.
      keys: [N], one for each image; unused by kinds without noise.

    Returns:
      uint8 [N, H, W, C].

    Raises:
      UsageError: for an unknown kind or severity, and JPEG of images without 1 or 3 channels.
    """
    check_choice("kind", kind, KINDS)
    if severity not in SEVERITIES:
        raise UsageError(f"severity={severity}; expected 1, 2, 3, 4 or 5.")
    parts = [
        _part(images[i : i + PART], kind, severity, keys[i : i + PART])
        for i in range(0, max(len(images), 1), PART)
    ]
    return np.concatenate(parts)


def _part(images: Any, kind: str, severity: int, keys: Array) -> np.ndarray:
    unit = to_unit(jnp.asarray(images))
    if kind == JPEG:
        return _jpeg(_to_bytes(unit), JPEG_QUALITY[severity - 1])
    strength = jnp.asarray(STRENGTHS[kind][severity - 1], unit.dtype)
    return _to_bytes(_corrupt(unit, keys, strength, kind=kind))


@functools.partial(jax.jit, static_argnames="kind")
def _corrupt(images: Array, keys: Array, strength: Array, *, kind: str) -> Array:
    return jax.vmap(CORRUPTIONS[kind], (0, 0, None))(images, keys, strength)


def _to_bytes(images: Array) -> np.ndarray:
    return np.asarray(jnp.rint(255 * jnp.clip(images, 0, 1)).astype(jnp.uint8))


def _jpeg(images: np.ndarray, quality: int) -> np.ndarray:
    """Each image written and read as JPEG, by Pillow."""
    from PIL import Image

    channels = images.shape[-1]
    if channels not in (1, 3):
        raise UsageError(f"The images have {channels} channels; JPEG expects 1 or 3.")
    decoded = []
    for image in images:
        stream = io.BytesIO()
        Image.fromarray(image[..., 0] if channels == 1 else image).save(
            stream, "JPEG", quality=quality
        )
        decoded.append(np.asarray(Image.open(stream)).reshape(image.shape))
    return np.stack(decoded) if decoded else images


def _gaussian_noise(image: Array, key: Array, scale: Array) -> Array:
    return image + scale * jax.random.normal(key, image.shape, image.dtype)


def _shot_noise(image: Array, key: Array, photons: Array) -> Array:
    """Each pixel counts photons; white is `photons` of them on average."""
    return jax.random.poisson(key, image * photons, image.shape).astype(image.dtype) / photons


def _impulse_noise(image: Array, key: Array, share: Array) -> Array:
    """A share of the values becomes black or white."""
    draw = jax.random.uniform(key, image.shape, image.dtype)
    return jnp.where(draw < share / 2, 0.0, jnp.where(draw > 1 - share / 2, 1.0, image))


def _gaussian_blur(image: Array, key: Array, sigma: Array) -> Array:
    del key
    places = jnp.arange(-RADIUS, RADIUS + 1, dtype=image.dtype)
    weights = jnp.exp(-jnp.square(places / sigma) / 2)
    return _filter(image, weights[:, None] * weights[None])


def _defocus_blur(image: Array, key: Array, radius: Array) -> Array:
    """The mean over a disk, whose edge is one pixel wide."""
    del key
    places = jnp.arange(-RADIUS, RADIUS + 1, dtype=image.dtype)
    distance = jnp.hypot(places[:, None], places[None])
    return _filter(image, jnp.clip(radius + 0.5 - distance, 0.0, 1.0))


def _filter(image: Array, weights: Array) -> Array:
    """The weighted mean of shifted images; the edges are repeated."""
    height, width, _ = image.shape
    padded = jnp.pad(image, ((RADIUS, RADIUS), (RADIUS, RADIUS), (0, 0)), mode="edge")
    weights = weights / jnp.sum(weights)
    total = jnp.zeros_like(image)
    for i, j in itertools.product(range(2 * RADIUS + 1), repeat=2):
        total += weights[i, j] * padded[i : i + height, j : j + width]
    return total


def _motion_blur(image: Array, key: Array, length: Array) -> Array:
    """The mean along a line of this many pixels, in a random direction."""
    height, width, channels = image.shape
    angle = jax.random.uniform(key, (), image.dtype, -jnp.pi / 4, jnp.pi / 4)
    rows, columns = jnp.meshgrid(
        jnp.arange(height, dtype=image.dtype), jnp.arange(width, dtype=image.dtype), indexing="ij"
    )
    moved = []
    for share in np.linspace(-0.5, 0.5, 2 * RADIUS + 1):
        place = [rows + share * length * jnp.sin(angle), columns + share * length * jnp.cos(angle)]
        planes = [
            ndimage.map_coordinates(image[..., c], place, order=1, mode="nearest")
            for c in range(channels)
        ]
        moved.append(jnp.stack(planes, axis=-1))
    return jnp.mean(jnp.stack(moved), axis=0)


def _brightness(image: Array, key: Array, amount: Array) -> Array:
    """Adds to the value of HSV; hue and saturation stay."""
    del key
    value = jnp.max(image, axis=-1, keepdims=True)
    brighter = jnp.minimum(value + amount, 1.0)
    return jnp.where(value > 0, image * brighter / jnp.where(value > 0, value, 1.0), brighter)


def _contrast(image: Array, key: Array, share: Array) -> Array:
    """Moves each channel towards its mean; `share` of the distance stays."""
    del key
    mean = jnp.mean(image, axis=(0, 1), keepdims=True)
    return mean + share * (image - mean)


def _pixelate(image: Array, key: Array, share: Array) -> Array:
    """Fewer pixels, each the mean of its box, then the old size by the nearest pixel."""
    del key
    rows, columns = (_boxes(size, share, image.dtype) for size in image.shape[:2])
    return jnp.einsum("ih,jw,hwc->ijc", rows, columns, image)


def _boxes(size: int, share: Array, dtype: Any) -> Array:
    """[size, size]: the weights of old pixels in the box that each pixel shows."""
    count = jnp.maximum(jnp.floor(size * share), 1.0)
    places = jnp.arange(size, dtype=dtype)
    box = jnp.floor((places + 0.5) * count / size) * size / count  # Where each pixel's box begins.
    end = box + size / count
    overlap = jnp.minimum(places[None] + 1, end[:, None]) - jnp.maximum(places[None], box[:, None])
    weights = jnp.maximum(overlap, 0.0)
    return weights / jnp.sum(weights, axis=1, keepdims=True)


CORRUPTIONS: dict[str, Corruption] = {
    "gaussian_noise": _gaussian_noise,
    "shot_noise": _shot_noise,
    "impulse_noise": _impulse_noise,
    "gaussian_blur": _gaussian_blur,
    "defocus_blur": _defocus_blur,
    "motion_blur": _motion_blur,
    "brightness": _brightness,
    "contrast": _contrast,
    "pixelate": _pixelate,
}
KINDS = (*CORRUPTIONS, JPEG)
STRENGTHS = {
    "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),
    "shot_noise": (500.0, 250.0, 100.0, 75.0, 50.0),
    "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),
    "gaussian_blur": (0.4, 0.6, 0.7, 0.8, 1.0),
    "defocus_blur": (0.6, 0.8, 1.0, 1.25, 1.5),
    "motion_blur": (2.0, 3.0, 4.0, 5.0, 6.0),
    "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
    "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),
}
