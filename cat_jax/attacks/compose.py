"""Attacks made of attacks."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from cat_jax import losses
from cat_jax.attacks.arguments import check_batch, check_count, is_concrete
from cat_jax.attacks.starts import per_example_keys
from cat_jax.errors import UsageError
from cat_jax.types import Array, LogitsFn, per_image

# (logits_fn, images, labels, key) -> images.
Whole = Callable[[LogitsFn, Array, Array, Array], Array]
_Known = tuple[Array, Array]  # What is kept of each example, and is it misclassified?


def restarts(attack: Callable[..., Array], num_restarts: int) -> Whole:
    """`attack`, such as a partial `pgd`, from `num_restarts` random starts.

    Returns:
      An attack with the same first four arguments. Of each example, the first point that is
      misclassified is kept; one that never is keeps its last point. So a success is never lost.

    Raises:
      UsageError: for less than one restart.
    """
    check_count(num_restarts=num_restarts)
    return functools.partial(_restarted, attack=attack, num_restarts=num_restarts)


def worst_case(*attacks: Callable[..., Array]) -> Whole:
    """Each example under the first of `attacks` that fools the classifier on it.

    Returns:
      An attack with the same first four arguments. For an example that withstands all attacks,
      it returns the image of the last one. Each attack draws its own noise; an attack does not run
      on a batch of which all examples are fooled.

    Raises:
      UsageError: without attacks.
    """
    if not attacks:
        raise UsageError("worst_case() got no attacks; expected at least one.")
    return functools.partial(_worst, attacks=attacks)


# Partials of these, because `NamedAttack` reads the conditions of an attack from its arguments.
def _restarted(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    attack: Callable[..., Array],
    num_restarts: int,
) -> Array:
    check_batch(images, labels)
    if not len(images):
        return images

    def again(restart: int, known: _Known) -> _Known:
        return _attack_again(attack, restart, logits_fn, images, labels, key, known)

    known = _nothing(images, labels)
    if is_concrete(images) and is_concrete(num_restarts):  # Each attack is compiled already.
        return functools.reduce(lambda known, i: again(i, known), range(num_restarts), known)[0]
    return lax.fori_loop(0, num_restarts, again, known)[0]


def _worst(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    attacks: tuple[Callable[..., Array], ...],
) -> Array:
    check_batch(images, labels)
    if not len(images):
        return images
    known = _nothing(images, labels)
    for number, attack in enumerate(attacks):
        run = functools.partial(_attack_again, attack, number, logits_fn, images, labels, key)
        if is_concrete(known[1]):
            known = known if known[1].all() else run(known)
        else:
            known = lax.cond(jnp.all(known[1]), lambda known: known, run, known)
    return known[0]


def _attack_again(
    attack: Callable[..., Array],
    number: int,
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    known: _Known,
) -> _Known:
    """`known`, and for what is not fooled yet what `attack` finds with noise number `number`."""
    kept, fooled = known
    keys = per_example_keys(key, len(images))
    fresh = jax.vmap(functools.partial(jax.random.fold_in, data=number))(keys)
    found = attack(logits_fn, images, labels, fresh)
    kept = jnp.where(per_image(fooled), kept, found)
    return kept, fooled | ~losses.is_right(logits_fn(found), labels)


def _nothing(images: Array, labels: Array) -> _Known:
    return jnp.asarray(images), jnp.zeros(labels.shape, bool)
