"""Data sets in memory, the order of their batches, and augmentation on the device."""

from cat_jax.data.augment import Augment, crop_flip, to_unit, unchanged
from cat_jax.data.batches import batch_indices, epoch_of, padded_batches, steps_until
from cat_jax.data.sources import (
    DATA_DIR,
    LOADERS,
    Dataset,
    Spec,
    Split,
    fingerprint,
    load,
    split_validation,
)

__all__ = [
    "DATA_DIR",
    "LOADERS",
    "Augment",
    "Dataset",
    "Spec",
    "Split",
    "batch_indices",
    "crop_flip",
    "epoch_of",
    "fingerprint",
    "load",
    "padded_batches",
    "split_validation",
    "steps_until",
    "to_unit",
    "unchanged",
]
