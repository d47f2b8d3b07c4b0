"""One run of APGD in L1: sparse steps, in balls that shrink to the radius (Croce & Hein 2021)."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from cat_jax.attacks.apgd_runs import Ascent, Evaluate, choose, seen, unseen
from cat_jax.attacks.arguments import PixelRange
from cat_jax.attacks.ascent import project
from cat_jax.attacks.balls import sparse_sign
from cat_jax.types import Array

# Runs at multiples of the radius, each from the best point of the last.
RADII = (3, 2, 1)
SHARES = (0.3, 0.3, 0.4)  # Of all steps.
WINDOW = 0.04  # Part of a run's steps between two checkpoints.
SPARSER = 0.95  # A perturbation with less than this part of the entries restarts the step size.
FACTOR = 1.5  # By which steps shrink, and by which they move fewer entries than the best point.
LEAST_STEP = 0.1  # Of the radius, which is the largest.


class _SparsePath(NamedTuple):
    """Where a run in L1 is; see `_Path`."""

    candidate: Array
    step_size: Array
    share: Array  # [B], part of the entries that a step moves.
    support: Array  # [B], entries that the best point moved, at the last checkpoint.
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
    """Runs in L1 balls of 3, 2 and 1 times epsilon, each from the best point of the one before.

    Points of the last alone count as adversarial, because only those are within epsilon.
    """
    steps = jnp.asarray(l1_steps(num_steps))
    radii = jnp.asarray(RADII, images.dtype)

    def run_at(number: Array, ascent: Ascent) -> Ascent:
        radius = radii[number] * epsilon
        begin = project(ascent.best_point, images, radius, pixel_range, "l1")
        return _run_at(evaluate, images, begin, radius, steps[number], pixel_range)

    return lax.fori_loop(0, len(RADII), run_at, unseen(images, start))


def _run_at(
    evaluate: Evaluate,
    images: Array,
    start: Array,
    epsilon: Array,
    num_steps: Array,
    pixel_range: PixelRange,
) -> Ascent:
    window = jnp.maximum((num_steps * WINDOW).astype(jnp.int32), 1)

    def visit(step: Array, path: _SparsePath) -> _SparsePath:
        gradient, (values, wrong) = evaluate(path.candidate)
        better = values > path.best.best_loss
        path = path._replace(
            best_gradient=choose(better, gradient, path.best_gradient),
            best=seen(path.best, path.candidate, values, wrong),
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
        share=support / images[0].size / FACTOR,
        support=support,
        best_gradient=jnp.zeros_like(images),
        best=unseen(images, start),
    )
    return lax.fori_loop(0, num_steps + 1, visit, path).best


def _checkpoint(
    path: _SparsePath, gradient: Array, ends: Array, images: Array, epsilon: Array
) -> tuple[_SparsePath, Array]:
    """Where a window ends: steps as sparse as the best point, and full ones where that is sparser.

    There the run goes on from the best point; elsewhere its steps are shortened.
    """
    support = _support(path.best.best_point - images)
    sparser = support < SPARSER * path.support
    shorter = jnp.maximum(path.step_size / FACTOR, LEAST_STEP * epsilon)
    step_size = choose(sparser, jnp.broadcast_to(epsilon, shorter.shape), shorter)
    restarts = ends & sparser
    path = path._replace(
        candidate=choose(restarts, path.best.best_point, path.candidate),
        step_size=jnp.where(ends, step_size, path.step_size),
        share=jnp.where(ends, support / images[0].size / FACTOR, path.share),
        support=jnp.where(ends, support, path.support),
    )
    return path, choose(restarts, path.best_gradient, gradient)


def l1_steps(num_steps: int) -> np.ndarray:
    """[3]: the steps at each of `RADII`; all at the last if there are fewer than three."""
    if num_steps < len(RADII):
        return np.array([0, 0, num_steps], np.int32)
    first, second = (int(np.ceil(share * num_steps)) for share in SHARES[:2])
    return np.array([first, second, num_steps - first - second], np.int32)


def _support(delta: Array) -> Array:
    """[B], in its dtype: how many entries are not 0."""
    return jnp.sum(delta != 0, axis=(1, 2, 3)).astype(delta.dtype)
