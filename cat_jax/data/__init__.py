"""Data sets in memory, the order of their batches, and augmentation on the device.

Importing the file of a data set registers its record. To add a data set, add its line here.
Augmentation and corruption are imported at their first use: records can be read without JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

from cat_jax.data import cifar_images as cifar_images
from cat_jax.data import digit_images as digit_images
from cat_jax.data import extra_images as extra_images
from cat_jax.data import mnist_images as mnist_images
from cat_jax.data import own_images as own_images
from cat_jax.data import synthetic_images as synthetic_images
from cat_jax.data import tiny_imagenet_images as tiny_imagenet_images
from cat_jax.data.batches import Clock as Clock
from cat_jax.data.batches import batch_indices as batch_indices
from cat_jax.data.batches import padded_batches as padded_batches
from cat_jax.data.feed import Feed as Feed
from cat_jax.data.source import Source as Source
from cat_jax.data.source import find_source as find_source
from cat_jax.data.source import load as load
from cat_jax.data.source import spec as spec
from cat_jax.data.splits import Dataset as Dataset
from cat_jax.data.splits import Spec as Spec
from cat_jax.data.splits import Split as Split
from cat_jax.data.splits import balanced as balanced
from cat_jax.data.splits import fingerprint as fingerprint
from cat_jax.data.splits import split_validation as split_validation

LAZY = {
    **dict.fromkeys(("Augment", "crop_flip", "cutmix", "erase", "to_unit", "unchanged"), "augment"),
    **dict.fromkeys(("JPEG", "KINDS", "SEVERITIES", "corrupt"), "corruptions"),
}
if TYPE_CHECKING:
    from cat_jax.data.augment import Augment as Augment
    from cat_jax.data.augment import crop_flip as crop_flip
    from cat_jax.data.augment import cutmix as cutmix
    from cat_jax.data.augment import erase as erase
    from cat_jax.data.augment import to_unit as to_unit
    from cat_jax.data.augment import unchanged as unchanged
    from cat_jax.data.corruptions import JPEG as JPEG
    from cat_jax.data.corruptions import KINDS as KINDS
    from cat_jax.data.corruptions import SEVERITIES as SEVERITIES
    from cat_jax.data.corruptions import corrupt as corrupt


def __getattr__(name: str) -> Any:
    if name in LAZY:
        return getattr(importlib.import_module(f"cat_jax.data.{LAZY[name]}"), name)
    raise AttributeError(f"module 'cat_jax.data' has no attribute {name!r}")
