"""A run of APGD in an L1 ball (Croce & Hein 2021): sparse steps in balls that shrink to epsilon."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from cat_jax.attacks.apgd_runs import Ascent, Evaluate, choose, with_point, without_points
from cat_jax.attacks.arguments import PixelRange
from cat_jax.attacks.ascent import project
from cat_jax.attacks.balls import sparse_sign
from cat_jax.types import Array

# Radii of the three stages, as multiples of epsilon, and their shares of all steps.
RADII = (3, 2, 1)
STEP_SHARES = (0.3, 0.3, 0.4)
WINDOW_SHARE = 0.04  # Steps between two checkpoints, as a share of the steps of a stage.
# The step size restarts if the best point has less than this share of its entries before.
RESTART_SHARE = 0.95
# Divides the step size at a checkpoint; a step moves as many entries as the best point, over this.
SHRINK_FACTOR = 1.5
MIN_STEP_SHARE = 0.1  # Smallest step size, as a share of the radius.


class _SparsePath(NamedTuple):
    """State of a run in an L1 ball; fields without a comment are those of `apgd_runs._Path`."""

    candidate: Array
    step_size: Array
    share: Array  # [B], share of the entries that a step moves.
    support: Array  # [B], number of entries that the best point had moved at the last checkpoint.
    best_gradient: Array
    best: Ascent


def run_l1(
    evaluate: Evaluate,
    images: Array,
    start: Array,
    epsilon: Array,
    num_steps: int,
    pixel_range: PixelRange,
) -> Ascent:
    """Runs in L1 balls of radius 3, 2 and 1 epsilon, each from the best point of the one before.

    Only points of the last stage count as adversarial, because only they are within epsilon.
    """
    steps = jnp.asarray(l1_steps(num_steps))
    radii = jnp.asarray(RADII, images.dtype)

    def run_at(number: Array, ascent: Ascent) -> Ascent:
        radius = radii[number] * epsilon
        begin = project(ascent.best_point, images, radius, pixel_range, "l1")
        return _run_at(evaluate, images, begin, radius, steps[number], pixel_range)

    return lax.fori_loop(0, len(RADII), run_at, without_points(images, start))


def _run_at(
    evaluate: Evaluate,
    images: Array,
    start: Array,
    epsilon: Array,
    num_steps: Array,
    pixel_range: PixelRange,
) -> Ascent:
    window = jnp.maximum((num_steps * WINDOW_SHARE).astype(jnp.int32), 1)

    def visit(step: Array, path: _SparsePath) -> _SparsePath:
        gradient, (values, wrong) = evaluate(path.candidate)
        better = values > path.best.best_loss
        path = path._replace(
            best_gradient=choose(better, gradient, path.best_gradient),
            best=with_point(path.best, path.candidate, values, wrong),
        )
        ends = (step > 0) & (step % window == 0)
        path, gradient = _checkpoint(path, gradient, ends, images, epsilon)
        move = path.step_size * sparse_sign(gradient, path.share)
        moved = project(path.candidate + move, images, epsilon, pixel_range, "l1")
        return path._replace(candidate=moved)

    support = _support(start - images)
    path = _SparsePath(
        candidate=start,
        step_size=jnp.broadcast_to(epsilon, (len(images), 1, 1, 1)),
        share=support / images[0].size / SHRINK_FACTOR,
        support=support,
        best_gradient=jnp.zeros_like(images),
        best=without_points(images, start),
    )
    return lax.fori_loop(0, num_steps + 1, visit, path).best


def _checkpoint(
    path: _SparsePath, gradient: Array, ends: Array, images: Array, epsilon: Array
) -> tuple[_SparsePath, Array]:
    """At the end of a window, steps become as sparse as the best point.

    If the best point has become sparser, the run restarts from it with the full step size;
    otherwise the step size shrinks.
    """
    support = _support(path.best.best_point - images)
    sparser = support < RESTART_SHARE * path.support
    shorter = jnp.maximum(path.step_size / SHRINK_FACTOR, MIN_STEP_SHARE * epsilon)
    step_size = choose(sparser, jnp.broadcast_to(epsilon, shorter.shape), shorter)
    restarts = ends & sparser
    path = path._replace(
        candidate=choose(restarts, path.best.best_point, path.candidate),
        step_size=jnp.where(ends, step_size, path.step_size),
        share=jnp.where(ends, support / images[0].size / SHRINK_FACTOR, path.share),
        support=jnp.where(ends, support, path.support),
    )
    return path, choose(restarts, path.best_gradient, gradient)


def l1_steps(num_steps: int) -> np.ndarray:
    """The number of steps at each of `RADII`, [3]; fewer than three steps are all at epsilon."""
    if num_steps < len(RADII):
        return np.array([0, 0, num_steps], np.int32)
    first, second = (int(np.ceil(share * num_steps)) for share in STEP_SHARES[:2])
    return np.array([first, second, num_steps - first - second], np.int32)


def _support(delta: Array) -> Array:
    """The number of entries of each example that are not 0, [B], in the dtype of `delta`."""
    return jnp.sum(delta != 0, axis=(1, 2, 3)).astype(delta.dtype)
