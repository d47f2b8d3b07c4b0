"""Which classes a targeted attack aims at."""

import jax
import jax.numpy as jnp
from jax import lax

from cat_jax.types import Array


def likeliest_wrong(logits: Array, labels: Array, num_targets: int) -> Array:
    """[T, B]: the wrong classes of the largest logits, the largest first; T is K - 1 at most."""
    num_classes = logits.shape[-1]
    true = jax.nn.one_hot(labels, num_classes, dtype=bool)
    wrong = jnp.where(true, -jnp.inf, logits)
    return lax.top_k(wrong, min(num_targets, num_classes - 1))[1].T
