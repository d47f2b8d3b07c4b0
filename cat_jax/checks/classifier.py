"""What a classifier reveals, on one batch, about a robustness that is not there."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cat_jax import attacks, losses
from cat_jax.attacks.arguments import PixelRange, as_key, as_pixel_range
from cat_jax.attacks.callables import TrainingMode
from cat_jax.attacks.entry import Entry
from cat_jax.checks import findings
from cat_jax.checks.findings import Finding
from cat_jax.errors import UsageError
from cat_jax.types import Array, LogitsFn

PGD_STEPS, STARTS, APGD_STEPS = 10, 5, 40
NEARBY = 0.01  # Share of the way to a corner of the ball.


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
      logits_fn: images -> logits [B, K], the classifier to evaluate. For a pytree, such as a
        `jax.tree_util.Partial`, another checkpoint compiles nothing again.
      images: [B, H, W, C], floating, in [0, 1]; at least two.
      labels: [B], integer.
      key: decides all noise; the same key gives the same findings.
      epsilon: radius of the L-infinity ball, on the scale of the images (8/255, not 8).
      pixel_range: range that attacks are clipped to; None: never clipped, another threat model.

    Returns:
      finite, finite_gradients, logits, resolution, answers, repeatable, independent,
      zero_gradients, restarts, growing_epsilon and epsilon_one, in this order. For a classifier
      that changes its own state when it is called, inference alone, which says so.

    Raises:
      UsageError: for fewer than two images, images or a radius outside [0, 1], labels that are not
        classes, and a classifier that does not return logits.
    """
    images, labels = jnp.asarray(images), jnp.asarray(labels)
    if len(images) < 2:
        raise UsageError(
            f"The batch has {len(images)} images; expected at least 2, better 64: "
            "whether an answer depends on the batch shows beside other images."
        )
    for_corners, for_attacks = jax.random.split(as_key(key))
    with jax.default_matmul_precision("highest"):
        try:
            entry = Entry.of(logits_fn, images, labels)
        except TrainingMode as error:
            return [findings.inference(str(error))]
        hyper: dict[str, Any] = dict(epsilon=float(entry.radius("epsilon", epsilon)))
        hyper["pixel_range"] = as_pixel_range(pixel_range)
        batch = (entry.logits_fn, entry.images, labels)
        corners = _corners(entry.images, for_corners, **hyper)
        return [*_on_logits(*batch, corners), *_under_attacks(*batch, for_attacks, **hyper)]


def radii_to_one(epsilon: float) -> list[float]:
    """A quarter of epsilon, twice that, and so on, and 1 in the end; from 0, 1 at once."""
    radii = [epsilon / 4]
    while radii[-1] < 1.0:
        radii.append(min(2 * radii[-1], 1.0) or 1.0)
    return radii


def _on_logits(
    logits_fn: LogitsFn, images: Array, labels: Array, corners: list[Array]
) -> list[Finding]:
    """Half of the batch comes a second time, last to first, behind copies of one image."""
    half = len(images) // 2
    copies = jnp.repeat(images[:1], len(images) - half, axis=0)
    nearby = images + NEARBY * (corners[0] - images)
    rearranged = jnp.concatenate([copies, images[:half][::-1]])
    batches = [images, images, rearranged, *corners, nearby]
    logits = np.stack([np.asarray(_logits(logits_fn, x)) for x in batches])
    natural, again, moved_places, corner, opposite, near = logits
    gradients = np.asarray(_gradients(logits_fn, images, labels))
    flat = ~gradients.any(axis=(1, 2, 3))
    stepped = flat & (near == natural).all(-1) & (corner != natural).any(-1)
    return [
        findings.finite(np.stack([natural, corner, opposite])),
        findings.finite_gradients(gradients),
        findings.are_logits(natural),
        findings.resolution(natural),
        findings.answers(natural, np.asarray(labels)),
        findings.repeatable(natural, again),
        findings.independent(natural[:half], moved_places[::-1][:half]),
        findings.gradients(flat, stepped),
    ]


def _under_attacks(
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
def _gradients(logits_fn: LogitsFn, images: Array, labels: Array) -> Array:
    """The cross-entropy's input gradient, [B, H, W, C]."""

    def total(x: Array) -> Array:
        return jnp.sum(losses.cross_entropy(logits_fn(x), labels))

    return jax.grad(total)(images)


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
    adversarial = attacks.restarts(pgd, num_starts)(logits_fn, images, labels, key)
    return losses.is_right(logits_fn(adversarial), labels)


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
    adversarial = attacks.apgd(logits_fn, images, labels, key, num_steps=APGD_STEPS, **hyper)
    return losses.is_right(logits_fn(adversarial), labels)
