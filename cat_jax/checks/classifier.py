"""What a classifier reveals, on one batch, about a robustness that is not there."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cat_jax import attacks, losses
from cat_jax.attacks.arguments import check_batch, check_labels, check_radius
from cat_jax.attacks.pgd import PixelRange, as_pytree
from cat_jax.checks import findings
from cat_jax.checks.during_training import zero_gradients
from cat_jax.checks.findings import Finding
from cat_jax.errors import UsageError
from cat_jax.types import Array, LogitsFn

PGD_STEPS, STARTS, APGD_STEPS = 10, 5, 40


def examine(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: float,
    pixel_range: PixelRange = (0.0, 1.0),
) -> list[Finding]:
    """Checks that an honest classifier passes, and one that hides its gradient does not.

    None proves robustness. Together they take some 400 gradients of the batch at epsilon = 0.03.

    All is compiled: what a plain function draws in Python it draws once, while it is traced, so
    that `repeatable` cannot see it; `independent` does, if it differs from image to image. Noise
    from a callback is fresh in each call, and both see it.

    Args:
      logits_fn: images -> logits [B, K], as it is to be evaluated. Of a pytree, such as a
        `jax.tree_util.Partial`, weights are traced: another checkpoint compiles nothing again.
      images: [B, H, W, C], floating, in [0, 1]; at least two.
      labels: [B], integer.
      key: of all noise; the same key gives the same findings.
      epsilon: radius of the L-infinity ball, on the scale of the images (8/255, not 8).
      pixel_range: what attacks are clipped to; None: never clipped, another threat model.

    Returns:
      finite, logits, repeatable, independent, zero_gradients, restarts, growing_epsilon and
      epsilon_one: always all, in this order.

    Raises:
      UsageError: for fewer than two images, images or a radius outside [0, 1], and labels that
        are not classes.
    """
    images, labels, logits_fn = jnp.asarray(images), jnp.asarray(labels), as_pytree(logits_fn)
    _check(logits_fn, images, labels, epsilon)
    of_corners, of_attacks = jax.random.split(key)
    hyper: dict[str, Any] = dict(epsilon=float(epsilon), pixel_range=pixel_range)
    with jax.default_matmul_precision("highest"):
        return [
            *_of_logits(logits_fn, images, _corners(images, of_corners, **hyper)),
            *_of_attacks(logits_fn, images, labels, of_attacks, **hyper),
        ]


def radii_to_one(epsilon: float) -> list[float]:
    """A quarter of epsilon, twice that, and so on, and 1 in the end; from 0, 1 at once."""
    radii = [epsilon / 4]
    while radii[-1] < 1.0:
        radii.append(min(2 * radii[-1], 1.0) or 1.0)
    return radii


def _check(logits_fn: LogitsFn, images: Array, labels: Array, epsilon: float) -> None:
    if len(images) < 2:
        raise UsageError(
            f"The batch has {len(images)} images; expected at least 2, better 64: "
            "whether an answer depends on the batch shows beside other images."
        )
    check_batch(images, labels)
    check_radius(epsilon=epsilon)
    check_labels(logits_fn, images, labels)


def _of_logits(logits_fn: LogitsFn, images: Array, corners: list[Array]) -> list[Finding]:
    """Half of the batch comes a second time, last to first, behind copies of one image."""
    half = len(images) // 2
    copies = jnp.repeat(images[:1], len(images) - half, axis=0)
    batches = [images, images, jnp.concatenate([copies, images[:half][::-1]]), *corners]
    logits = np.stack([np.asarray(_logits(logits_fn, x), np.float64) for x in batches])
    first, again, rearranged = logits[:3]
    return [
        findings.finite(logits[[0, 3, 4]]),
        findings.are_logits(first),
        findings.repeatable(first, again),
        findings.independent(first[:half], rearranged[::-1][:half]),
    ]


def _of_attacks(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    epsilon: float,
    pixel_range: PixelRange,
) -> list[Finding]:
    batch, radii, total = (logits_fn, images, labels), radii_to_one(epsilon), len(images)
    pgd = functools.partial(_right_under_pgd, *batch, key, epsilon, pixel_range=pixel_range)
    apgd = functools.partial(_right_under_apgd, *batch, key, pixel_range=pixel_range)
    one, more = (np.asarray(pgd(num_starts)) for num_starts in (1, STARTS))
    right = [int(np.sum(apgd(radius))) for radius in radii]
    return [
        findings.gradients(round(float(zero_gradients(*batch)) * total), total),
        findings.restarts(f"PGD-{PGD_STEPS}", one, more, STARTS),
        findings.growing_epsilon(right, radii, total),
        findings.epsilon_one(right[-1], total),
    ]


def _corners(images: Array, key: Array, epsilon: float, pixel_range: PixelRange) -> list[Array]:
    """Two opposite corners of each image's ball, chosen at random."""
    move = epsilon * jax.random.rademacher(key, images.shape, images.dtype)
    corners = [images + move, images - move]
    return corners if pixel_range is None else [jnp.clip(x, *pixel_range) for x in corners]


@jax.jit
def _logits(logits_fn: LogitsFn, images: Array) -> Array:
    return logits_fn(images)


@functools.partial(jax.jit, static_argnames="pixel_range")
def _right_under_pgd(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    epsilon: Array,
    num_starts: Any,
    *,
    pixel_range: PixelRange,
) -> Array:
    """Bool [B]. The number of starts is traced, so that the first is the same to the last bit."""
    hyper: dict[str, Any] = dict(epsilon=epsilon, step_size=epsilon / 4, pixel_range=pixel_range)
    pgd = functools.partial(attacks.pgd, num_steps=PGD_STEPS, **hyper)
    found = attacks.restarts(pgd, num_starts)(logits_fn, images, labels, key)
    return losses.is_right(logits_fn(found), labels)


@functools.partial(jax.jit, static_argnames="pixel_range")
def _right_under_apgd(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    epsilon: Array,
    *,
    pixel_range: PixelRange,
) -> Array:
    """Bool [B]. The radius is traced: one compilation serves all."""
    hyper: dict[str, Any] = dict(epsilon=epsilon, pixel_range=pixel_range)
    found = attacks.apgd(logits_fn, images, labels, key, num_steps=APGD_STEPS, **hyper)
    return losses.is_right(logits_fn(found), labels)
