"""Attacks that run other attacks: restarts of one, the union of several, one at a precision."""

import functools
from collections.abc import Callable, Sequence

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
_Progress = tuple[Array, Array]  # Images, and whether each is misclassified, bool [B].


def restarts(attack: Callable[..., Array], num_restarts: int) -> Whole:
    """`attack`, such as a partial `pgd`, from `num_restarts` random starts.

    Returns:
      An attack with the same first four arguments. It returns the first misclassified point of
      each example, or the last point if none is misclassified. Misclassified means that the class
      is not the label, also if `attack` is targeted.

    Raises:
      UsageError: if there are no restarts.
    """
    check_count(num_restarts=num_restarts)
    return functools.partial(_restarted, attack=attack, num_restarts=num_restarts)


def union(attacks: Sequence[Callable[..., Array]]) -> Whole:
    """The worst case of several attacks, such as PGD in an L-infinity, an L2 and an L1 ball.

    An image counts as right only if it withstands all attacks.

    Args:
      attacks: attacks with their arguments, such as partials of `pgd`, with any norms and radii.

    Returns:
      An attack with the same first four arguments. For each example, it returns the image of the
      first attack that fools the classifier, or of the last attack if none does. Each attack draws
      its own noise. It does not run on a batch in which all examples are fooled.

    Raises:
      UsageError: if there are no attacks.
    """
    if callable(attacks) or not attacks:
        raise UsageError("union got no list of attacks; expected at least one: union([pgd, apgd]).")
    return functools.partial(_union, attacks=tuple(attacks))


def at_precision(attack: Callable[..., Array], precision: str) -> Whole:
    """`attack`, whose passes through the network multiply in lower precision, which is faster.

    Whether an image fools the classifier is for the caller to judge at full precision: an image
    that was found in bfloat16 and is misclassified in float32 is a valid adversarial image.
    Evaluations judge so. CPUs always compute in float32.

    Args:
      attack: an attack with its arguments.
      precision: as for `jax.default_matmul_precision`, such as "tensorfloat32" or "bfloat16".
    """
    return functools.partial(_at_precision, attack=attack, search_precision=precision)


# Because `NamedAttack` reads the conditions of an attack from its arguments, these are partials.
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

    def again(restart: int, progress: _Progress) -> _Progress:
        return _attack_again(attack, restart, logits_fn, images, labels, key, progress)

    progress = _before(images, labels)
    if is_concrete(images) and is_concrete(num_restarts):  # Because the attack itself is compiled.
        for restart in range(num_restarts):
            progress = again(restart, progress)
        return progress[0]
    return lax.fori_loop(0, num_restarts, again, progress)[0]


def _union(
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
    progress = _before(images, labels)
    for number, attack in enumerate(attacks):
        run = functools.partial(_attack_again, attack, number, logits_fn, images, labels, key)
        if is_concrete(progress[1]):
            progress = progress if progress[1].all() else run(progress)
        else:
            progress = lax.cond(jnp.all(progress[1]), lambda unchanged: unchanged, run, progress)
    return progress[0]


def _at_precision(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    attack: Callable[..., Array],
    search_precision: str,
) -> Array:
    with jax.default_matmul_precision(search_precision):
        return attack(logits_fn, images, labels, key)


def _attack_again(
    attack: Callable[..., Array],
    number: int,
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    progress: _Progress,
) -> _Progress:
    """Runs `attack` with noise number `number`, and updates the examples that are not fooled."""
    images_so_far, fooled = progress
    keys = per_example_keys(key, len(images))
    fresh = jax.vmap(functools.partial(jax.random.fold_in, data=number))(keys)
    adversarial = attack(logits_fn, images, labels, fresh)
    images_so_far = jnp.where(per_image(fooled), images_so_far, adversarial)
    return images_so_far, fooled | ~losses.is_right(logits_fn(adversarial), labels)


def _before(images: Array, labels: Array) -> _Progress:
    return jnp.asarray(images), jnp.zeros(labels.shape, bool)
