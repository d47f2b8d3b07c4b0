"""Adversarial images of an evaluation: their rules, rounding to 8 bits, and their file."""

import contextlib
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from cat_jax.data import Split
from cat_jax.errors import UsageError, check_choice
from cat_jax.evaluation.results import Place

SLACK = 1e-6  # x + epsilon - x exceeds epsilon by up to 3e-8 in float32.
KEPT = ("none", "float32", "uint8")


def excess_of(
    name: str, conditions: Mapping[str, Any], images: np.ndarray, adversarial: np.ndarray
) -> float:
    """How far the worst adversarial image violates the attack's rules, in float64.

    Raises:
      RuntimeError: if that is more than rounding, because the accuracy is then invalid.
    """
    excess = float(np.max(_outside(conditions, images, adversarial)))
    candidate = adversarial.astype(np.float64)
    if conditions.get("clipped", True):
        excess = max(excess, float(-np.min(candidate)), float(np.max(candidate)) - 1.0)
    if not excess <= SLACK:  # Written as `not <=` so that NaN fails too.
        raise RuntimeError(
            f"{name} left its ball or the pixel range by {excess:.2e}; "
            f"expected at most {SLACK:.0e}, because its accuracy is invalid otherwise."
        )
    return excess


def _outside(
    conditions: Mapping[str, Any], images: np.ndarray, adversarial: np.ndarray
) -> np.ndarray:
    """How far each image is outside the ball of the attack, or the nearest one of a union, [N]."""
    if conditions.get("norm") == "union":
        parts = [_outside(part, images, adversarial) for part in conditions["attacks"]]
        return np.min(parts, axis=0)
    epsilon = conditions.get("epsilon", 0.0)
    distances = distances_of(conditions, images, adversarial)
    if conditions.get("norm") == "l1":  # Rounding of each pixel adds up: relative to the radius.
        return distances / max(epsilon, 1.0) - min(epsilon, 1.0)
    return distances - epsilon


def distances_of(
    conditions: Mapping[str, Any], images: np.ndarray, adversarial: np.ndarray
) -> np.ndarray:
    """How far each image was moved in the norm of the attack, float64 [N]."""
    delta = np.abs(adversarial.astype(np.float64) - _unit(images)).reshape(len(images), -1)
    if (norm := conditions.get("norm")) == "l2":
        return np.sqrt(np.sum(np.square(delta), axis=1))
    return np.sum(delta, axis=1) if norm == "l1" else np.max(delta, axis=1)


def to_bytes(
    adversarial: np.ndarray, natural: np.ndarray, conditions: Mapping[str, Any]
) -> np.ndarray:
    """The nearest 8-bit images within epsilon.

    Args:
      adversarial: [N, H, W, C] in [0, 1].
      natural: uint8, of the same shape.
      conditions: conditions of the attack; epsilon 0.031 is 7.9 grey levels, so images move by 7.

    Raises:
      UsageError: for an L2 or L1 ball, because rounding may leave it.
    """
    if (norm := conditions.get("norm", "linf")) != "linf":
        raise UsageError(
            f"config.test.save_adversarial is uint8; expected float32 for attacks in an "
            f"{norm.upper()} ball, which images rounded to 8 bits may leave."
        )
    levels = math.floor(255 * conditions["epsilon"] + 1e-4)
    original = natural.astype(np.int16)
    rounded = np.rint(255 * adversarial.astype(np.float64)).astype(np.int16)
    clipped = original + np.clip(rounded - original, -levels, levels)
    return np.clip(clipped, 0, 255).astype(np.uint8)


class Images:
    """The adversarial images of a split, in memory or in a file.

    Attributes:
      array: [N, H, W, C], float32 or uint8.
      is_new: whether the file was created now, without images.
    """

    def __init__(self, file: pathlib.Path | None, shape: tuple[int, ...], dtype: str) -> None:
        """Opens `file`; replaces a file with another shape or dtype."""
        self._file, self.is_new = file, True
        if file is None:
            self.array = np.zeros(shape, dtype)
            return
        with contextlib.suppress(OSError, ValueError):
            self.array = np.lib.format.open_memmap(file, "r")
            self.is_new = (self.array.shape, self.array.dtype) != (shape, np.dtype(dtype))
        if self.is_new:
            file.parent.mkdir(parents=True, exist_ok=True)
            np.lib.format.open_memmap(file, "w+", dtype, shape)
            self.array = np.lib.format.open_memmap(file, "r")

    def put(self, indices: np.ndarray, images: np.ndarray) -> None:
        """Stores images at these indices, which ascend; they are on the disk when it returns."""
        images = np.ascontiguousarray(images, self.array.dtype)
        if self._file is None:
            self.array[indices] = images
            return
        assert isinstance(self.array, np.memmap)
        with open(self._file, "r+b") as stream:
            # Not through the memory map, whose large pages the system would write repeatedly.
            for run in np.split(np.arange(len(indices)), np.flatnonzero(np.diff(indices) != 1) + 1):
                if len(run):
                    stream.seek(self.array.offset + int(indices[run[0]]) * images[0].nbytes)
                    stream.write(images[run].tobytes())
            stream.flush()
            os.fsync(stream.fileno())


def open_images(place: Place | None, split: Split, keep: str) -> Images | None:
    """The store for the adversarial images of a split; None to keep none."""
    if check_choice("keep", keep, KEPT) == "none":
        return None
    return Images(place.images if place else None, split.images.shape, keep)


def natural_images(split: Split, indices: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Images of a split in the form of its adversarial images: uint8, or float32 in [0, 1]."""
    images = split.images[indices]
    return images if images.dtype == dtype else _unit(images).astype(dtype)


def _unit(images: np.ndarray) -> np.ndarray:
    """Uint8 -> float64 in [0, 1]; others unchanged."""
    return images / np.float64(255) if images.dtype == np.uint8 else images
