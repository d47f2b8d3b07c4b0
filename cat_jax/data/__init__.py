"""Data sets in memory, the order of their batches, and augmentation on the device."""

from cat_jax.data.augment import Augment, crop_flip, to_unit, unchanged
from cat_jax.data.batches import Clock, batch_indices, padded_batches
from cat_jax.data.feed import Feed
from cat_jax.data.sources import (
    DATA_DIR,
    LOADERS,
    Dataset,
    Spec,
    Split,
    balanced,
    fingerprint,
    load,
    split_validation,
)

__all__ = [
    "DATA_DIR",
    "LOADERS",
    "Augment",
    "Clock",
    "Dataset",
    "Feed",
    "Spec",
    "Split",
    "balanced",
    "batch_indices",
    "crop_flip",
    "fingerprint",
    "load",
    "padded_batches",
    "split_validation",
    "to_unit",
    "unchanged",
]
