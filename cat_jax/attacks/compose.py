"""Attacks made of attacks."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from cat_jax.attacks.starts import per_example_keys
from cat_jax.types import Array, LogitsFn, per_image


def restarts(attack: Callable[..., Array], num_restarts: int) -> Callable[..., Array]:
    """`attack`, such as a partial `pgd`, from `num_restarts` random starts.

    Returns:
      An attack with the same first four arguments. Of each example, the first point that is
      misclassified is kept; one that never is keeps its last point. So a success is never lost.
    """

    def restarted(logits_fn: LogitsFn, images: Array, labels: Array, key: Array) -> Array:
        keys = per_example_keys(key, len(images))

        def again(restart: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            kept, fooled = carry
            fresh = jax.vmap(functools.partial(jax.random.fold_in, data=restart))(keys)
            found = attack(logits_fn, images, labels, fresh)
            kept = jnp.where(per_image(fooled), kept, found)
            return kept, fooled | (jnp.argmax(logits_fn(found), axis=-1) != labels)

        none = jnp.zeros(labels.shape, bool)
        return lax.fori_loop(0, num_restarts, again, (images, none))[0]

    return restarted
