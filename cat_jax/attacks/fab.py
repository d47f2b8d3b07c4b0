"""The fast adaptive boundary attack (FAB): the nearest misclassified point at any distance."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

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
from cat_jax.attacks.planes import plane_step
from cat_jax.attacks.targets import likeliest_wrong
from cat_jax.types import Array, LogitsFn, per_image

MIN_LENGTH = 1e-8  # As in the published code, so that two steps of length 0 do not give 0 / 0.


class FabDetails(NamedTuple):
    """Complete result of the search.

    Attributes:
      adversarial: images [B, H, W, C].
      fooled: bool [B], whether the natural image is misclassified, or a point within epsilon is.
      min_norm_per_target: [num_targets or K - 1, B], the distance of the nearest misclassified
        point on the way to each target, at any epsilon: infinite if there is none, 0 if the natural
        image is misclassified.
    """

    adversarial: Array
    fooled: Array
    min_norm_per_target: Array


def fab_t(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: Array | float,
    num_steps: int = 100,
    num_targets: int = 9,
    alpha_max: Array | float = 0.1,
    eta: Array | float = 1.05,
    beta: Array | float = 0.9,
    pixel_range: PixelRange = (0.0, 1.0),
    norm: str = "linf",
) -> Array:
    r"""The nearest misclassified point of a search for each target class, if within epsilon.

    This is the targeted attack of Croce & Hein (2020, "Minimally distorted adversarial examples
    with a fast adaptive boundary attack"), as published in AutoAttack. It linearises the difference
    of the target's logit and the true one at the iterate. The steps delta^t from the iterate and
    delta from x lead to the zeros of that function within the pixel range, and

    $$
    x^{t+1} = clip((1-\alpha)(x^t + \eta\,\delta^t) + \alpha(x + \eta\,\delta)), \quad
    \alpha = \min(\|\delta^t\| / (\|\delta^t\| + \|\delta\|), \alpha_{max})
    $$

    The search stores the nearest misclassified iterate, and moves each misclassified iterate back
    to x + beta (x^t - x). There is no random start, so the result is deterministic. The radius has
    no influence on the search: it decides only at the end which points count. The attack returns
    the point of the highest ranked target that succeeds.

    Args:
      logits_fn, images: as for `attacks.pgd`.
      labels: true classes, integers [B]. The attack chooses the targets.
      key: unused, because all attacks have the same signature.
      epsilon: radius of the ball, on the [0, 1] pixel scale (8/255, not 8); or one for each
        image, [B].
      num_steps: number of iterations for each target; each has a gradient and a forward pass.
        Static.
      num_targets: number of target classes, at most K - 1: the wrong classes with the largest
        logits at x. Static.
      alpha_max: largest weight of the projection of x in an iterate, in [0, 1].
      eta: length of a step, in distances to the plane; a little above 1 to cross it.
      beta: share of its distance to x that a misclassified iterate keeps, in [0, 1].
      pixel_range: range that clips the iterates; None: no clipping, which is another threat model.
      norm: norm of the steps and of the distance to x, "linf", "l2" or "l1". Static.

    Returns:
      Images, shaped as `images`. Examples that are misclassified already, and those without a
      misclassified point within epsilon, are returned unchanged. No gradient flows through them.

    Raises:
      UsageError: as `attacks.pgd`, and if alpha_max, eta or beta is outside its range.
    """
    del key
    check_count(num_steps=num_steps, num_targets=num_targets)
    check_share(alpha_max=alpha_max, beta=beta)
    check_positive(eta=eta)
    check_norm(norm)
    entry = Entry.of(logits_fn, images, labels)
    if entry.is_empty:
        return images
    hyper: dict[str, Any] = dict(num_steps=int(num_steps), num_targets=int(num_targets))
    hyper |= dict(alpha_max=alpha_max, eta=eta, beta=beta, pixel_range=as_pixel_range(pixel_range))
    hyper |= dict(epsilon=entry.radius("epsilon", epsilon, norm), norm=norm)
    details = fab_t_with_details(entry.logits_fn, entry.images, labels, **hyper)
    return entry.result(details.adversarial)


@functools.partial(jax.jit, static_argnames=("num_steps", "num_targets", "pixel_range", "norm"))
def fab_t_with_details(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    *,
    epsilon: Array | float,
    num_targets: int,
    norm: str = "linf",
    **kwargs: Any,
) -> FabDetails:
    """`fab_t` with its distances. It tries every target, also for examples that are fooled.

    Args:
      logits_fn: a pytree, traced.
      images, labels, epsilon, num_targets, norm, **kwargs: as for `fab_t`, without defaults.
    """
    logits = logits_fn(images)
    wrong = ~losses.is_right(logits, labels)

    def attack(carry: tuple[Array, Array], targets: Array) -> tuple[tuple[Array, Array], Array]:
        adversarial, fooled = carry
        plane = functools.partial(_plane_of_target, logits_fn, labels, targets)
        hyper: dict[str, Any] = dict(start=images, norm=norm) | kwargs
        nearest, distance = nearest_point(logits_fn, images, labels, plane, wrong, **hyper)
        accepted = ~fooled & (distance <= jnp.ravel(epsilon))
        adversarial = jnp.where(per_image(accepted), nearest, adversarial)
        return (adversarial, fooled | accepted), distance

    targets = likeliest_wrong(logits, labels, num_targets)
    (adversarial, fooled), distances = lax.scan(attack, (jnp.asarray(images), wrong), targets)
    return FabDetails(*lax.stop_gradient((adversarial, fooled, distances)))


def _plane_of_target(
    logits_fn: LogitsFn, labels: Array, targets: Array, candidate: Array
) -> tuple[Array, Array]:
    """The target's logit minus the true one, linearised: gradient [B, H, W, C], height [B]."""

    def total_height(candidate: Array) -> tuple[Array, Array]:
        logits = logits_fn(candidate)
        height = _chosen(logits, targets) - _chosen(logits, labels)
        return jnp.sum(height), height.astype(candidate.dtype)

    return jax.grad(total_height, has_aux=True)(candidate)


def nearest_point(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    plane: Callable[[Array], tuple[Array, Array]],
    wrong: Array,
    *,
    start: Array,
    num_steps: int,
    beta: Array | float,
    norm: str,
    **kwargs: Any,
) -> tuple[Array, Array]:
    """The nearest misclassified iterate of one run of FAB, and its distance [B].

    Without such an iterate, returns `images` and infinity; where `wrong` [B] holds, `images` and 0.

    Args:
      logits_fn, images, labels: as for `fab_t`.
      plane: candidate -> (gradient [B, H, W, C], height [B]) of the boundary that it moves to.
      wrong: [B], whether images are misclassified.
      start: first candidate.
      num_steps, beta, norm: as for `fab_t`.
      **kwargs: other arguments of `fab_t`.
    """

    def iterate(_: int, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        candidate, nearest, least = carry
        normal, height = plane(candidate)
        moved = _move(candidate, images, finite(normal), height, norm=norm, **kwargs)
        fooled = ~losses.is_right(logits_fn(moved), labels)
        distance = _length(moved - images, norm)
        nearer = fooled & (distance < least)  # False for NaN.
        nearest = jnp.where(per_image(nearer), moved, nearest)
        candidate = jnp.where(per_image(fooled), images + beta * (moved - images), moved)
        return candidate, nearest, jnp.where(nearer, distance, least)

    least = jnp.where(wrong, 0.0, jnp.inf).astype(images.dtype)
    _, nearest, least = lax.fori_loop(0, num_steps, iterate, (start, images, least))
    return nearest, least


def _move(
    candidate: Array,
    images: Array,
    normal: Array,
    height: Array,
    *,
    alpha_max: Array | float,
    eta: Array | float,
    pixel_range: PixelRange,
    norm: str,
) -> Array:
    """The equation of `fab_t`, with `height` [B] and its gradient `normal` at `candidate`."""
    steps = jax.vmap(functools.partial(plane_step, pixel_range=pixel_range, norm=norm))
    natural_height = height + jnp.sum(normal * (images - candidate), axis=(1, 2, 3))
    step, natural_step = steps(candidate, normal, height), steps(images, normal, natural_height)
    length, natural_length = (
        jnp.maximum(_length(s, norm), MIN_LENGTH) for s in (step, natural_step)
    )
    alpha = per_image(jnp.minimum(length / (length + natural_length), alpha_max))
    moved = (1 - alpha) * (candidate + eta * step) + alpha * (images + eta * natural_step)
    moved = moved if pixel_range is None else jnp.clip(moved, *pixel_range)
    return jnp.where(
        jnp.isfinite(moved), moved, candidate
    )  # Because a height may be NaN or infinite.


def _chosen(logits: Array, classes: Array) -> Array:
    return jnp.take_along_axis(logits, classes[:, None], axis=-1)[:, 0]


def _length(difference: Array, norm: str) -> Array:
    """[B, H, W, C] -> [B], in the dtype of `difference`."""
    return BALLS[norm].length(difference)[:, 0, 0, 0]
