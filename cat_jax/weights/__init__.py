"""Networks with weights: from files, from runs, and back into files."""

from cat_jax.weights.loading import Loaded, fingerprint, load
from cat_jax.weights.recognition import describe, describe_short, infer
from cat_jax.weights.weight_files import CLASSIFIER, MASK_NET

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
