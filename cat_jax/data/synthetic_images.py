"""`synthetic`: images drawn from a seed, for tests."""

import numpy as np

from cat_jax.data.source import Source
from cat_jax.data.splits import Loaded, Split
from cat_jax.runtime.registry import register


def load(data_dir: str) -> Loaded:
    """A pattern for each of 10 classes under weak noise: 256 and 64 images of 8x8x3."""
    del data_dir
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 256, (10, 8, 8, 3))

    def draw(num_examples: int) -> Split:
        labels = rng.permutation(np.arange(num_examples) % 10).astype(np.int32)
        noise = rng.integers(-25, 26, (num_examples, 8, 8, 3))
        return Split(np.clip(patterns[labels] + noise, 0, 255).astype(np.uint8), labels)

    return tuple("0123456789"), draw(256), draw(64)


register(Source("synthetic", load, num_train=256, num_test=64))
