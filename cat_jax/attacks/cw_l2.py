"""Carlini & Wagner's attack for the least Euclidean norm (2017; the paper's sec. 3.4)."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from cat_jax import losses
from cat_jax.attacks.arguments import check_count, check_positive, is_concrete
from cat_jax.attacks.balls import finite
from cat_jax.attacks.entry import Entry
from cat_jax.errors import UsageError
from cat_jax.types import Array, LogitsFn, per_image

EDGE = 1 - 1e-6  # Keeps arctanh finite at black and white.
MAX_C = 1e10


class _Best(NamedTuple):
    """The nearest adversarial point so far: squared distance [B], infinite if none; images."""

    distance: Array
    images: Array


def cw_l2(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array | None = None,
    *,
    kappa: float = 0.0,
    num_steps: int = 1000,
    num_searches: int = 9,
    learning_rate: float = 0.01,
    initial_c: float = 1e-3,
) -> Array:
    r"""Minimises the distance to x plus c times the margin that still separates x~ from an error.

    $$
    \|\tilde{x} - x\|_2^2 + c \max(f(\tilde{x})_y - \max_{i \ne y} f(\tilde{x})_i, -k)
    $$

    It uses Adam over w, with x~ = (tanh(w) + 1) / 2 in [0, 1]. The search for c multiplies it by
    ten until the attack succeeds, and then bisects, for each example. The cost is num_searches *
    num_steps forward and backward passes: 9,000 by default, 450 times that of PGD-20.

    Args:
      logits_fn, images, labels: as for `attacks.pgd`.
      key: unused, because there is no noise.
      kappa: k, the required margin of the best wrong logit over the true one.
      num_steps: number of steps of Adam for each c. Static.
      num_searches: number of values of c. Static.
      learning_rate: step size of Adam.
      initial_c: first value of c.

    Returns:
      The nearest misclassified images at any distance; x if there is none or if x is misclassified.

    Raises:
      UsageError: as `attacks.pgd`, for no steps or searches, for a negative kappa, and for a
        learning rate or an initial c that is not above 0.
    """
    del key
    check_count(num_steps=num_steps, num_searches=num_searches)
    check_positive(learning_rate=learning_rate, initial_c=initial_c)
    if is_concrete(kappa) and not kappa >= 0:
        raise UsageError(f"kappa={kappa}; expected a number from 0.")
    entry = Entry.of(logits_fn, images, labels)
    if entry.is_empty:
        return images
    hyper: dict[str, Any] = dict(num_steps=int(num_steps), num_searches=int(num_searches))
    hyper |= dict(kappa=kappa, learning_rate=learning_rate, initial_c=initial_c)
    return entry.result(_cw_l2(entry.logits_fn, entry.images, labels, **hyper))


@functools.partial(jax.jit, static_argnames=("num_steps", "num_searches"))
def _cw_l2(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    *,
    kappa: Array | float,
    num_steps: int,
    num_searches: int,
    learning_rate: Array | float,
    initial_c: Array | float,
) -> Array:
    adam = optax.adam(learning_rate)
    w0 = jnp.arctanh(EDGE * (2 * images - 1))

    def loss(w: Array, c: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        candidate = (jnp.tanh(w) + 1) / 2
        distance = jnp.sum(jnp.square(candidate - images), axis=(1, 2, 3))
        logits = logits_fn(candidate)
        margin = losses.margin(logits, labels)
        fooled = (margin > 0) & (margin >= kappa) | ~jnp.all(jnp.isfinite(logits), axis=-1)
        return jnp.sum(distance + c * jnp.maximum(-margin, -kappa)), (candidate, distance, fooled)

    def descend(c: Array, _: int, carry: Any) -> Any:
        w, opt_state, best, succeeded = carry
        gradient, (candidate, distance, fooled) = jax.grad(loss, has_aux=True)(w, c)
        nearer = fooled & (distance < best.distance)
        best = _Best(
            jnp.where(nearer, distance, best.distance),
            jnp.where(per_image(nearer), candidate, best.images),
        )
        updates, opt_state = adam.update(finite(gradient), opt_state)
        return optax.apply_updates(w, updates), opt_state, best, succeeded | fooled

    def search(_: int, carry: Any) -> Any:
        c, low, high, best = carry
        begin = (w0, adam.init(w0), best, jnp.zeros(labels.shape, bool))
        descended = lax.fori_loop(0, num_steps, functools.partial(descend, c), begin)
        _, _, best, succeeded = descended
        low, high = jnp.where(succeeded, low, c), jnp.where(succeeded, c, high)
        c = jnp.where(jnp.isinf(high), jnp.minimum(10 * c, MAX_C), (low + high) / 2)
        return c, low, high, best

    # A misclassified x is at distance 0, so no other point replaces it.
    wrong = ~losses.is_right(logits_fn(images), labels)
    infinite = jnp.full(labels.shape, jnp.inf, images.dtype)
    best = _Best(jnp.where(wrong, 0.0, infinite), images)
    c = jnp.full(labels.shape, initial_c, images.dtype)
    _, _, _, best = lax.fori_loop(0, num_searches, search, (c, jnp.zeros_like(c), infinite, best))
    return best.images
