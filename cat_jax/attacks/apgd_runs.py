"""A run of APGD: gradient ascent from a start that chooses its own step sizes."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from cat_jax.attacks.arguments import PixelRange
from cat_jax.attacks.ascent import project
from cat_jax.attacks.balls import BALLS
from cat_jax.types import Array, per_image

MOMENTUM = 0.75  # Share of the new step in a move; the rest repeats the last move.
# candidate -> gradient, (loss [B], whether the example is fooled [B]).
Evaluate = Callable[[Array], tuple[Array, tuple[Array, Array]]]


class Ascent(NamedTuple):
    """Result for each example, from the last run that attacked it.

    Attributes:
      adversarial: [B, H, W, C], the last successful iterate; `images` if there is none.
      fooled: [B], whether `adversarial` is a success: misclassified, or classified as the target.
      best_loss: [B], the highest loss of an iterate; -inf if the natural image is a success.
      best_point: [B, H, W, C], the iterate with the highest loss.
    """

    adversarial: Array
    fooled: Array
    best_loss: Array
    best_point: Array


class _Path(NamedTuple):
    """State of a run. Images are [B, H, W, C], the step size is [B, 1, 1, 1], other fields [B]."""

    candidate: Array
    previous: Array
    step_size: Array
    last_loss: Array
    increases: Array  # Number of steps since the last checkpoint that increased the loss.
    checkpoint_loss: Array  # Best loss at the last checkpoint.
    halved: Array  # Whether the last checkpoint halved the step size.
    best_gradient: Array
    result: Ascent


def run(
    evaluate: Evaluate,
    images: Array,
    start: Array,
    epsilon: Array,
    num_steps: int,
    rho: Array | float,
    pixel_range: PixelRange,
    norm: str,
) -> Ascent:
    """Runs APGD in an L-infinity or L2 ball; evaluates num_steps + 1 points."""
    windows = jnp.asarray(window_lengths(num_steps))

    def into_ball(candidate: Array) -> Array:
        return project(candidate, images, epsilon, pixel_range, norm)

    def visit(step: Array, path: _Path) -> _Path:
        gradient, (values, wrong) = evaluate(path.candidate)
        path = _record(path, values, gradient, wrong)
        path, gradient = _checkpoint(path, gradient, windows[step], rho)
        here, share = path.candidate, jnp.where(step == 0, 1.0, MOMENTUM).astype(images.dtype)
        ahead = into_ball(here + BALLS[norm].step(gradient, here, path.step_size, pixel_range))
        moved = here + share * (ahead - here) + (1 - share) * (here - path.previous)
        return path._replace(candidate=into_ball(moved), previous=here)

    start, none = into_ball(start), jnp.zeros(len(images), bool)
    lowest = jnp.full(len(images), -jnp.inf, images.dtype)
    path = _Path(
        candidate=start,
        previous=start,
        step_size=jnp.broadcast_to(2 * epsilon, (len(images), 1, 1, 1)),
        last_loss=-lowest,  # Because the start does not count as an increase.
        increases=jnp.zeros(len(images), jnp.int32),
        checkpoint_loss=lowest,
        halved=~none,  # So the first checkpoint considers only the number of increases.
        best_gradient=jnp.zeros_like(images),
        result=Ascent(images, none, lowest, start),
    )
    return lax.fori_loop(0, num_steps + 1, visit, path).result


def _record(path: _Path, values: Array, gradient: Array, wrong: Array) -> _Path:
    """Adds the loss and gradient at the candidate to `path`."""
    best = values > path.result.best_loss
    return path._replace(
        last_loss=values,
        increases=path.increases + (values > path.last_loss),
        best_gradient=choose(best, gradient, path.best_gradient),
        result=with_point(path.result, path.candidate, values, wrong),
    )


def with_point(ascent: Ascent, candidate: Array, values: Array, wrong: Array) -> Ascent:
    """Adds one evaluated point to `ascent`."""
    best = values > ascent.best_loss
    return Ascent(
        adversarial=choose(wrong, candidate, ascent.adversarial),
        fooled=ascent.fooled | wrong,
        best_loss=choose(best, values, ascent.best_loss),
        best_point=choose(best, candidate, ascent.best_point),
    )


def _checkpoint(
    path: _Path, gradient: Array, window: Array, rho: Array | float
) -> tuple[_Path, Array]:
    """At the end of a window, if Condition 1 or 2 of the paper holds: halves the step size.

    The example then restarts from its best point. `previous` is unchanged, so the momentum of the
    next step starts there, as in the published code.
    """
    ends, best_loss = window > 0, path.result.best_loss
    few = path.increases <= rho * window
    stuck = ~path.halved & (best_loss <= path.checkpoint_loss)
    halve = ends & (few | stuck)
    path = path._replace(
        candidate=choose(halve, path.result.best_point, path.candidate),
        step_size=choose(halve, path.step_size / 2, path.step_size),
        increases=jnp.where(ends, 0, path.increases),
        checkpoint_loss=jnp.where(ends, best_loss, path.checkpoint_loss),
        halved=jnp.where(ends, halve, path.halved),
    )
    return path, choose(halve, path.best_gradient, gradient)


def window_lengths(num_steps: int) -> np.ndarray:
    """The length of the window that ends at each step, [num_steps + 1]; 0 if none ends there.

    The first window has 22 % of all steps. Each later one is shorter by 3 % of all steps, down to
    6 %.
    """
    length, shorter, least = (max(share * num_steps // 100, 1) for share in (22, 3, 6))
    lengths, end = np.zeros(num_steps + 1, np.int32), length
    while end <= num_steps:
        lengths[end] = length
        length = max(length - shorter, least)
        end += length
    return lengths


def without_points(images: Array, start: Array) -> Ascent:
    """The result before any point is evaluated; the run begins at `start`."""
    lowest = jnp.full(len(images), -jnp.inf, images.dtype)
    return Ascent(images, jnp.zeros(len(images), bool), lowest, start)


def choose(condition: Array, yes: Array, no: Array) -> Array:
    """Returns `yes` for examples where `condition` [B] holds, and `no` for the others."""
    return jnp.where(condition if yes.ndim == 1 else per_image(condition), yes, no)
