"""Checks of a classifier on one batch for false robustness (gradient masking)."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cat_jax import attacks, losses
from cat_jax.attacks.arguments import PixelRange, as_key, as_pixel_range
from cat_jax.attacks.callables import TrainingMode
from cat_jax.attacks.entry import Entry
from cat_jax.errors import UsageError
from cat_jax.evaluation.checks import findings
from cat_jax.evaluation.checks.findings import Finding
from cat_jax.types import Array, LogitsFn

PGD_STEPS, NUM_STARTS, APGD_STEPS = 10, 5, 40
NEARBY_SHARE = 0.01  # Part of the way from an image to a corner of its ball.


def examine(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: float,
    pixel_range: PixelRange = (0.0, 1.0),
) -> list[Finding]:
    """Runs checks that pass for a robust classifier and fail if its gradients are masked.

    Passing does not prove robustness. Together the checks take about 400 gradients of the batch at
    epsilon = 0.03.

    The checks compile the classifier, so random numbers that a plain Python function draws are
    drawn once, when it is traced. `repeatable_logits` cannot detect such noise;
    `independent_of_batch` does if the noise differs between images. Both detect noise from a
    callback.

    Args:
      logits_fn: images -> logits [B, K], the classifier to examine. A pytree, such as a
        `jax.tree_util.Partial`, is not compiled again for another checkpoint.
      images: [B, H, W, C], floating, in [0, 1]; at least two.
      labels: [B], integer.
      key: random key; the same key gives the same findings.
      epsilon: radius of the L-infinity ball, on the scale of the images (8/255, not 8).
      pixel_range: range to which attacks clip images; None: no clipping, another threat model.

    Returns:
      finite_logits, finite_gradients, outputs_are_logits, precision_suffices, better_than_chance,
      repeatable_logits, independent_of_batch, nonzero_gradients, more_starts_are_stronger,
      larger_epsilon_is_stronger and epsilon_one_fools_all, in this order. Only inference_mode,
      which fails, if a call changes the state of the classifier.

    Raises:
      UsageError: if there are fewer than two images, images or the radius are outside [0, 1],
        labels are not classes, or the classifier does not return logits.
    """
    images, labels = jnp.asarray(images), jnp.asarray(labels)
    if len(images) < 2:
        raise UsageError(
            f"The batch has {len(images)} images; expected at least 2, better 64, because some "
            "checks compare an image's logits in different batches."
        )
    for_corners, for_attacks = jax.random.split(as_key(key))
    with jax.default_matmul_precision("highest"):
        try:
            entry = Entry.of(logits_fn, images, labels)
        except TrainingMode as error:
            return [findings.inference_mode(str(error))]
        hyper: dict[str, Any] = dict(epsilon=float(entry.radius("epsilon", epsilon)))
        hyper["pixel_range"] = as_pixel_range(pixel_range)
        batch = (entry.logits_fn, entry.images, labels)
        corners = _corners(entry.images, for_corners, **hyper)
        return [*_on_logits(*batch, corners), *_under_attacks(*batch, for_attacks, **hyper)]


def radii_to_one(epsilon: float) -> list[float]:
    """The radii epsilon / 4, epsilon / 2, ... doubling up to 1; for epsilon 0: 0 and 1."""
    radii = [epsilon / 4]
    while radii[-1] < 1.0:
        radii.append(min(2 * radii[-1], 1.0) or 1.0)
    return radii


def _on_logits(
    logits_fn: LogitsFn, images: Array, labels: Array, corners: list[Array]
) -> list[Finding]:
    """The checks that compare logits.

    The rearranged batch holds copies of one image, then half of the batch in reverse order.
    """
    half = len(images) // 2
    copies = jnp.repeat(images[:1], len(images) - half, axis=0)
    nearby = images + NEARBY_SHARE * (corners[0] - images)
    rearranged = jnp.concatenate([copies, images[:half][::-1]])
    batches = [images, images, rearranged, *corners, nearby]
    logits = np.stack([np.asarray(_logits(logits_fn, x)) for x in batches])
    natural, repeated, moved, corner, opposite, near = logits
    gradients = np.asarray(input_gradients(logits_fn, images, labels))
    flat = (gradients == 0).all(axis=(1, 2, 3))
    stepped = flat & (near == natural).all(-1) & (corner != natural).any(-1)
    return [
        findings.finite_logits(np.stack([natural, corner, opposite])),
        findings.finite_gradients(gradients),
        findings.outputs_are_logits(natural),
        findings.precision_suffices(natural),
        findings.better_than_chance(natural, np.asarray(labels)),
        findings.repeatable_logits(natural, repeated),
        findings.independent_of_batch(natural[:half], moved[::-1][:half]),
        findings.nonzero_gradients(flat, stepped),
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
    pgd = functools.partial(_correct_under_pgd, *batch, key, epsilon, pixel_range=pixel_range)
    apgd = functools.partial(_correct_under_apgd, *batch, key, pixel_range=pixel_range)
    after_first, after_all = (np.asarray(pgd(num_starts)) for num_starts in (1, NUM_STARTS))
    counts = [int(np.sum(apgd(radius))) for radius in radii]
    return [
        findings.more_starts_are_stronger(f"PGD-{PGD_STEPS}", after_first, after_all, NUM_STARTS),
        findings.larger_epsilon_is_stronger(counts, radii, total),
        findings.epsilon_one_fools_all(counts[-1], total),
    ]


def _corners(images: Array, key: Array, epsilon: float, pixel_range: PixelRange) -> list[Array]:
    """Two opposite random corners of the ball around each image."""
    move = epsilon * jax.random.rademacher(key, images.shape, images.dtype)
    corners = [images + move, images - move]
    return corners if pixel_range is None else [jnp.clip(x, *pixel_range) for x in corners]


@jax.jit
def input_gradients(logits_fn: LogitsFn, images: Array, labels: Array) -> Array:
    """The input gradient of the cross-entropy, [B, H, W, C]."""

    def total(x: Array) -> Array:
        return jnp.sum(losses.cross_entropy(logits_fn(x), labels))

    return jax.grad(total)(images)


@jax.jit
def _logits(logits_fn: LogitsFn, images: Array) -> Array:
    return logits_fn(images)


@functools.partial(jax.jit, static_argnames="pixel_range")
def _correct_under_pgd(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    epsilon: Array,
    num_starts: Any,
    *,
    pixel_range: PixelRange,
) -> Array:
    """Which images are correct, bool [B].

    The number of starts is traced: one program makes the first start bitwise equal for any number.
    """
    hyper: dict[str, Any] = dict(epsilon=epsilon, step_size=epsilon / 4, pixel_range=pixel_range)
    pgd = functools.partial(attacks.pgd, num_steps=PGD_STEPS, **hyper)
    adversarial = attacks.restarts(pgd, num_starts)(logits_fn, images, labels, key)
    return losses.is_right(logits_fn(adversarial), labels)


@functools.partial(jax.jit, static_argnames="pixel_range")
def _correct_under_apgd(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    epsilon: Array,
    *,
    pixel_range: PixelRange,
) -> Array:
    """Which images are correct, bool [B]. The radius is traced: one compilation serves all."""
    hyper: dict[str, Any] = dict(epsilon=epsilon, pixel_range=pixel_range)
    adversarial = attacks.apgd(logits_fn, images, labels, key, num_steps=APGD_STEPS, **hyper)
    return losses.is_right(logits_fn(adversarial), labels)
