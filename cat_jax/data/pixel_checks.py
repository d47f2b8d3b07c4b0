"""Checks of the user's own images: their size, their type, and the scale of their pixels."""

import logging
from collections.abc import Mapping

import numpy as np

from cat_jax.errors import UsageError

logger = logging.getLogger(__name__)
# (images uint8 [N, H, W, C], labels int32 [N]) by the name of the split; "all" is not split yet.
Splits = Mapping[str, tuple[np.ndarray, np.ndarray]]
MAX_SIDE = 128  # Pixels: the networks are made for 28 to 32, and the cost grows with the area.


def check_size(name: str, height: int, width: int) -> None:
    """Raises UsageError unless an image is a square of at most `MAX_SIDE` pixels a side."""
    if height != width or height > MAX_SIDE:
        raise UsageError(
            f"{name} is {height}x{width}; expected squares of at most {MAX_SIDE} pixels a side. "
            "Crop and shrink all images first, each by PIL.ImageOps.fit(image, (32, 32))."
        )


def to_bytes(name: str, images: np.ndarray) -> np.ndarray:
    """Images as uint8, from uint8 or from floats in [0, 1], which are rounded.

    Raises:
      UsageError: for another type, or floats outside [0, 1], with the remedy for their range.
    """
    if images.dtype == np.uint8:
        return images
    low, high = float(images.min()), float(images.max())
    if not np.issubdtype(images.dtype, np.floating):
        raise UsageError(
            f"{name} is {images.dtype} with values from {low:.4g} to {high:.4g}; expected uint8 in "
            f"0..255, or floats in [0, 1]: {_remedy(low, high)}."
        )
    if not (low >= 0.0 and high <= 1.0):
        raise UsageError(
            f"{name} has values from {low:.4g} to {high:.4g}; expected [0, 1], or uint8: divide by "
            "255, or undo the normalisation, which is config.classifier.mean and std here."
        )
    levels = np.rint(255 * images)
    if (change := float(np.max(np.abs(levels - 255 * images)))) > 0.01:
        logger.warning("%s is rounded to 8 bits, by up to %.2f/255.", name, change)
    return levels.astype(np.uint8)


def _remedy(low: float, high: float) -> str:
    """How to convert whole numbers of this range; `astype(uint8)` alone would wrap large ones."""
    if low < 0:
        return "shift and scale them into [0, 1]"
    if high <= 1:
        return "images.astype(numpy.float32)"
    if high <= 255:
        return "images.astype(numpy.uint8)"
    return f"images / {'65535' if high <= 65535 else 'the largest possible value'}"


def check_levels(name: str, splits: Splits) -> None:
    """Raises UsageError if no pixel is above 1 of 255: the images were meant to be 0 and 1."""
    if max(int(images.max()) for images, _ in splits.values()) <= 1:
        raise UsageError(
            f"{name} has no pixel above 1 of 255: its images are black. If 0 and 1 stand for black "
            "and white, multiply them by 255, or store them as floats."
        )
