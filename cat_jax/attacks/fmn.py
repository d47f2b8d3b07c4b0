"""FMN: a nearest adversarial image, by a ball whose radius follows the boundary."""

import functools
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
from cat_jax.attacks.ascent import project
from cat_jax.attacks.balls import BALLS, finite
from cat_jax.attacks.entry import Entry
from cat_jax.attacks.minimum_norm import Nearest
from cat_jax.types import Array, LogitsFn, per_image

DUAL = {"linf": "l1", "l2": "l2", "l1": "linf"}
LAST_STEP = 0.01  # The last step, as a share of the first one.
LAST_CHANGE = 0.02  # Likewise of the change of the radius.


def fmn(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array | None = None,
    *,
    epsilon: Array | float | None = None,
    norm: str = "linf",
    num_steps: int = 100,
    step_size: Array | float = 1.0,
    gamma: Array | float = 0.05,
    pixel_range: PixelRange = (0.0, 1.0),
) -> Array:
    r"""The fast minimum-norm attack (Pintor et al. 2021): the nearest misclassified image.

    Each step climbs the margin $\max_{k \ne y} z_k - z_y$ along its gradient and projects onto the
    ball of radius $\epsilon_t$ around x. The radius shrinks by a share of gamma where the image is
    misclassified and grows where it is not. Until an image is first misclassified, the radius
    grows from the distance to the boundary if the margin were linear:

    $$
    \epsilon_t = \|\delta_t\| + |m(x + \delta_t)| \, / \, \|\nabla m(x + \delta_t)\|_*
    $$

    with the dual norm. Steps and changes of the radius decrease along a cosine. There is no
    epsilon to choose: the accuracy at every radius is that of one run, by `attacks.distances`.

    Args:
      logits_fn, images, labels: as for `attacks.pgd`.
      key: unused; there is no noise.
      epsilon: return only images within this radius; None: at any distance.
      norm: "linf", "l2" or "l1". Static.
      num_steps: number of gradient steps. Static.
      step_size: Euclidean length of the first step, on the [0, 1] pixel scale; the last is a
        hundredth of it. In L-infinity a good length is the radius of interest times sqrt(H W C),
        about 8 for MNIST: with 1 the attack may be much weaker.
      gamma: by which share the radius changes at first.
      pixel_range: range that iterates are clipped to; None: never clipped, another threat model.

    Returns:
      Images, shaped as `images`: the nearest misclassified one. An image that is misclassified
      already, or that the attack never fools, is returned unchanged.

    Raises:
      UsageError: as `attacks.pgd`; for a step size of 0 or less and a gamma outside [0, 1].
    """
    del key
    check_norm(norm)
    check_count(num_steps=num_steps)
    check_positive(step_size=step_size)
    check_share(gamma=gamma)
    entry = Entry.of(logits_fn, images, labels)
    if entry.is_empty:
        return images
    hyper: dict[str, Any] = dict(norm=norm, num_steps=int(num_steps), step_size=step_size)
    hyper |= dict(gamma=gamma, pixel_range=as_pixel_range(pixel_range))
    hyper["epsilon"] = None if epsilon is None else entry.radius("epsilon", epsilon, norm)
    return entry.result(_fmn(entry.logits_fn, entry.images, labels, **hyper))


@functools.partial(jax.jit, static_argnames=("norm", "num_steps", "pixel_range"))
def _fmn(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    *,
    epsilon: Array | float | None,
    norm: str,
    num_steps: int,
    step_size: Array | float,
    gamma: Array | float,
    pixel_range: PixelRange,
) -> Array:
    length, dual_length = BALLS[norm].length, BALLS[DUAL[norm]].length
    farthest = length(_largest_move(images, pixel_range))

    def evaluate(candidate: Array) -> tuple[Array, tuple[Array, Array]]:
        logits = logits_fn(candidate)
        margin = losses.margin(logits, labels).astype(images.dtype)
        return jnp.sum(margin), (margin, ~losses.is_right(logits, labels))

    def visit(step: Array, carry: tuple[Array, Array, Nearest]) -> tuple[Array, Array, Nearest]:
        candidate, radius, nearest = carry
        gradient, (margin, fooled) = jax.grad(evaluate, has_aux=True)(candidate)
        gradient = _free(finite(gradient), candidate, pixel_range)
        margin, fooled = per_image(margin), per_image(fooled)
        distance = length(candidate - images)
        nearest = nearest.or_nearer(candidate, distance, fooled)
        cosine = cosine_decay(step, num_steps)
        change = gamma * (LAST_CHANGE + (1 - LAST_CHANGE) * cosine)
        slope = dual_length(gradient)
        boundary = distance + jnp.abs(margin) / jnp.where(slope > 0, slope, 1.0)
        # Beyond the boundary too: a point on it may stay on the right side by rounding.
        outwards = (1 + change) * jnp.where(nearest.exists, radius, boundary)
        outwards = jnp.where(~nearest.exists & (slope == 0), farthest, outwards)
        inwards = jnp.minimum((1 - change) * radius, nearest.distance)
        radius = jnp.minimum(jnp.where(fooled, inwards, outwards), farthest)
        share = LAST_STEP + (1 - LAST_STEP) * cosine
        move = BALLS["l2"].step(gradient, candidate, step_size * share, pixel_range)
        return project(candidate + move, images, radius, pixel_range, norm), radius, nearest

    # The last of num_steps + 1 points is only evaluated.
    carry = (images, jnp.full_like(farthest, jnp.inf), Nearest.nothing(images))
    nearest = lax.fori_loop(0, num_steps + 1, visit, carry)[-1]
    return lax.stop_gradient(nearest.within(epsilon, images))


def cosine_decay(step: Array, num_steps: int) -> Array:
    """From 1 at step 0 to 0 at step `num_steps`, along half a cosine."""
    return (1 + jnp.cos(jnp.pi * step / num_steps)) / 2


def _free(gradient: Array, candidate: Array, pixel_range: PixelRange) -> Array:
    """`gradient`, without the entries of pixels that the pixel range stops.

    They would bring the boundary nearer than it is, and take their share of each step.
    """
    if pixel_range is None:
        return gradient
    low, high = pixel_range
    stopped = (candidate <= low) & (gradient < 0) | (candidate >= high) & (gradient > 0)
    return jnp.where(stopped, 0.0, gradient)


def _largest_move(images: Array, pixel_range: PixelRange) -> Array:
    """By how much each pixel can change."""
    if pixel_range is None:
        return jnp.full_like(images, jnp.inf)
    low, high = pixel_range
    return jnp.maximum(jnp.abs(images - low), jnp.abs(high - images))
