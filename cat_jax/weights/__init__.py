"""Networks with weights: from files, from runs, and back into files."""

from cat_jax.weights.loading import (
    CLASSIFIER,
    MASK_NET,
    Loaded,
    describe,
    describe_short,
    fingerprint,
    infer,
    load,
)

__all__ = [
    "CLASSIFIER",
    "MASK_NET",
    "Loaded",
    "describe",
    "describe_short",
    "fingerprint",
    "infer",
    "load",
]
