"""`digits`: 1,797 handwritten digits of 8x8 pixels, which come with scikit-learn."""

import numpy as np

from cat_jax.data.source import Source
from cat_jax.data.splits import Loaded, Split, split_test
from cat_jax.runtime.registry import register


def load(data_dir: str) -> Loaded:
    """The digits; 36 of each class, always the same, are the test split."""
    del data_dir
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[..., None]
    examples = Split(images, bunch.target.astype(np.int32))
    return tuple("0123456789"), *split_test(examples, lambda size: 36)


register(Source("digits", load, num_train=1437, num_test=360))
