"""Which images of an unfinished record an attack still has to attack."""

import numpy as np

from cat_jax.data import Split
from cat_jax.evaluation.images import Images, natural_images
from cat_jax.evaluation.results import UNKNOWN, Record, Result


def skip_fooled(record: Record, split: Split, before: Result | None, images: Images | None) -> None:
    """Writes into a record, and into `images`, the images that the previous attack has fooled."""
    if before is None:
        return
    fooled = ~before.flags
    record.flags[fooled] = 0
    if images is None:
        return
    new = np.flatnonzero(fooled & ~record.stored)
    earlier, dtype = before.adversarial, images.array.dtype
    images.put(new, natural_images(split, new, dtype) if earlier is None else earlier[new])
    record.stored[new] = True


def missing_images(record: Record, images: Images | None) -> np.ndarray:
    """Indices of the images whose flags, or whose adversarial images, are missing."""
    unknown = record.flags == UNKNOWN
    return np.flatnonzero(unknown if images is None else unknown | ~record.stored)
