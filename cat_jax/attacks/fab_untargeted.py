"""FAB without targets: at each step it moves towards the nearest class (Croce & Hein 2020)."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from cat_jax import losses
from cat_jax.attacks.arguments import (
    PixelRange,
    as_pixel_range,
    check_count,
    check_norm,
    check_positive,
    check_share,
)
from cat_jax.attacks.balls import BALLS, finite
from cat_jax.attacks.entry import Entry
from cat_jax.attacks.fab import nearest_point
from cat_jax.attacks.starts import per_example_keys, uniform_noise
from cat_jax.types import Array, LogitsFn, per_image

DUAL = {"linf": "l1", "l2": "l2", "l1": "linf"}  # The norm that measures gradients.
LEAST = 1e-12  # Of the published code: a class whose gradient is zero is far away.


def fab(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: Array | float,
    num_steps: int = 100,
    num_restarts: int = 5,
    alpha_max: Array | float = 0.1,
    eta: Array | float = 1.05,
    beta: Array | float = 0.9,
    pixel_range: PixelRange = (0.0, 1.0),
    norm: str = "linf",
) -> Array:
    """The nearest misclassified point of a search, if within epsilon; `fab_t` without targets.

    Each step linearises the logits of all classes, and moves towards the class whose boundary is
    nearest then. It takes K gradients, so `fab_t` is cheaper with many classes. The first run
    starts at the image, later ones at a distance of half epsilon, as in AutoAttack's "plus".

    Args:
      logits_fn, images, labels, epsilon, alpha_max, eta, beta, pixel_range, norm: as for `fab_t`.
      key: one key, or one for each image, [B]; unused with one run.
      num_steps: steps of each run. Static.
      num_restarts: number of runs. Static.

    Returns:
      Images, as `fab_t`: of each example what the first run that succeeds gave.

    Raises:
      UsageError: as `fab_t`, and without a run.
    """
    check_count(num_steps=num_steps, num_restarts=num_restarts)
    check_share(alpha_max=alpha_max, beta=beta)
    check_positive(eta=eta)
    check_norm(norm)
    entry = Entry.of(logits_fn, images, labels)
    if entry.is_empty:
        return images
    hyper: dict[str, Any] = dict(num_steps=int(num_steps), num_restarts=int(num_restarts))
    hyper |= dict(alpha_max=alpha_max, eta=eta, beta=beta, pixel_range=as_pixel_range(pixel_range))
    hyper |= dict(epsilon=entry.radius("epsilon", epsilon, norm), norm=norm)
    return entry.result(_search(entry.logits_fn, entry.images, labels, key, **hyper))


@functools.partial(jax.jit, static_argnames=("num_steps", "num_restarts", "pixel_range", "norm"))
def _search(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: Array | float,
    num_restarts: int,
    pixel_range: PixelRange,
    norm: str,
    **kwargs: Any,
) -> Array:
    keys = per_example_keys(key, len(images))
    wrong = ~losses.is_right(logits_fn(images), labels)
    plane = functools.partial(_nearest_plane, logits_fn, labels, norm)

    def run(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        adversarial, fooled = carry
        fresh = jax.vmap(functools.partial(jax.random.fold_in, data=number))(keys)
        noise = jnp.where(number == 0, 0.0, _direction(fresh, images, norm))
        start = images + epsilon / 2 * noise
        start = start if pixel_range is None else jnp.clip(start, *pixel_range)
        start = jnp.where(number == 0, images, start)
        hyper: dict[str, Any] = dict(start=start, pixel_range=pixel_range, norm=norm) | kwargs
        point, distance = nearest_point(logits_fn, images, labels, plane, wrong, **hyper)
        accepted = ~fooled & (distance <= jnp.ravel(epsilon))
        return jnp.where(per_image(accepted), point, adversarial), fooled | accepted

    return lax.stop_gradient(lax.fori_loop(0, num_restarts, run, (images, wrong))[0])


def _nearest_plane(
    logits_fn: Callable[[Array], Array], labels: Array, norm: str, candidate: Array
) -> tuple[Array, Array]:
    """The boundary of the nearest class, linearised: its gradient [B, H, W, C] and height [B]."""
    logits, pull = jax.vjp(logits_fn, candidate)
    num_classes = logits.shape[-1]
    own = jax.nn.one_hot(labels, num_classes, dtype=logits.dtype)
    heights = logits - jnp.sum(own * logits, axis=-1, keepdims=True)

    def consider(carry: tuple[Array, Array, Array], k: Array) -> tuple[Any, None]:
        normal, height, least = carry
        (gradient,) = pull(jax.nn.one_hot(k, num_classes, dtype=logits.dtype)[None] - own)
        gradient = finite(gradient)
        size = BALLS[DUAL[norm]].length(gradient)[:, 0, 0, 0] + LEAST
        distance = jnp.where(labels == k, jnp.inf, jnp.abs(heights[:, k]) / size)
        is_nearer = distance < least
        normal = jnp.where(per_image(is_nearer), gradient, normal)
        height = jnp.where(is_nearer, heights[:, k].astype(candidate.dtype), height)
        return (normal, height, jnp.where(is_nearer, distance, least)), None

    far = jnp.full(len(labels), jnp.inf, candidate.dtype)
    start = (jnp.zeros_like(candidate), jnp.zeros(len(labels), candidate.dtype), far)
    (normal, height, _), _ = lax.scan(consider, start, jnp.arange(num_classes))
    return normal, height


def _direction(keys: Array, images: Array, norm: str) -> Array:
    """A random move of length 1, of each image from its own key."""
    if norm == "linf":
        noise = uniform_noise(keys, images)
    else:
        draw = functools.partial(jax.random.normal, shape=images.shape[1:], dtype=images.dtype)
        noise = jax.vmap(draw)(keys)
    length = BALLS[norm].length(noise)
    return noise / jnp.where(length > 0, length, 1.0)
