"""One attack on one batch: the function that an `Evaluator` compiles."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from cat_jax import losses
from cat_jax.attacks.named import NamedAttack
from cat_jax.data import to_unit
from cat_jax.types import Array, PyTree

ApplyFn = Callable[..., Any]  # (variables, images) -> logits, such as `module.apply`.


def attack_batch(
    apply: ApplyFn,
    named: NamedAttack,
    epsilon: Array | None,
    variables: PyTree,
    key: Array,
    images: Array,
    labels: Array,
    indices: Array,
) -> tuple[Array, Array, Array]:
    """Attacks a batch, at full float32 precision, which matrix units would otherwise reduce.

    Args:
      apply, variables: the network, and its parameters and statistics.
      named: the attack.
      epsilon: radius that replaces the attack's own; None keeps that.
      key: key of the attack; the key of an image derives from it and the index of the image.
      images: [B, H, W, C], uint8, or floats in [0, 1].
      labels, indices: [B].

    Returns:
      Whether each image is still classified correctly, [B]; forward passes on each image, [B]; the
      adversarial images, [B, H, W, C].
    """
    with jax.default_matmul_precision("highest"):
        logits_fn = Partial(apply, variables)
        natural = to_unit(images)
        queries = jnp.full(labels.shape, named.queries, jnp.int32)
        attack = named.attack if epsilon is None else named.at(epsilon).attack
        if attack is None:
            adversarial, queries = natural, jnp.zeros_like(queries)
        else:
            keys = jax.vmap(functools.partial(jax.random.fold_in, key))(indices)
            adversarial = attack(logits_fn, natural, labels, keys)
            if isinstance(adversarial, tuple):
                adversarial, queries = adversarial
        return losses.is_right(logits_fn(adversarial), labels), queries, adversarial
