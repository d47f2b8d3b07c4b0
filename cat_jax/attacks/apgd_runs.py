"""One run of APGD: from a start, ascent that finds its own step sizes."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from cat_jax.attacks.arguments import PixelRange
from cat_jax.attacks.ascent import project
from cat_jax.attacks.balls import BALLS
from cat_jax.types import Array, per_image

MOMENTUM = 0.75  # Of a move: the share of the new step; the rest repeats the last move.
# candidate -> its gradient, (its loss [B], is it misclassified? [B]).
Evaluate = Callable[[Array], tuple[Array, tuple[Array, Array]]]


class Ascent(NamedTuple):
    """What was found for each example, by the last run that it took part in.

    Attributes:
      adversarial: [B, H, W, C], the last misclassified iterate; `images` where there is none.
      fooled: [B], is `adversarial` misclassified?
      best_loss: [B], the highest loss of an iterate; -inf if the example is wrong as it is.
      best_point: [B, H, W, C], where it was.
    """

    adversarial: Array
    fooled: Array
    best_loss: Array
    best_point: Array


class _Path(NamedTuple):
    """Where a run is. Each field is [B, H, W, C], as is the step size, [B, 1, 1, 1], or [B]."""

    candidate: Array
    previous: Array
    step_size: Array
    last_loss: Array
    increases: Array  # Steps since the checkpoint that raised the loss.
    checkpoint_loss: Array  # The best loss at the checkpoint.
    halved: Array  # Was the step halved there?
    best_gradient: Array
    found: Ascent


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
    """One run in the L-infinity or L2 ball, with num_steps + 1 points."""
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
        last_loss=-lowest,  # The start is no increase.
        increases=jnp.zeros(len(images), jnp.int32),
        checkpoint_loss=lowest,
        halved=~none,  # The first checkpoint looks at the increases alone.
        best_gradient=jnp.zeros_like(images),
        found=Ascent(images, none, lowest, start),
    )
    return lax.fori_loop(0, num_steps + 1, visit, path).found


def _record(path: _Path, values: Array, gradient: Array, wrong: Array) -> _Path:
    """`path` with what was seen at its candidate."""
    best = values > path.found.best_loss
    return path._replace(
        last_loss=values,
        increases=path.increases + (values > path.last_loss),
        best_gradient=choose(best, gradient, path.best_gradient),
        found=seen(path.found, path.candidate, values, wrong),
    )


def seen(ascent: Ascent, candidate: Array, values: Array, wrong: Array) -> Ascent:
    """`ascent` with one more point."""
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
    """Where a window ends: where Condition 1 or 2 of the paper holds, half the step from the best.

    The step before stays `previous`, so that the next one's momentum points from there.
    """
    ends, best_loss = window > 0, path.found.best_loss
    few = path.increases <= rho * window
    stuck = ~path.halved & (best_loss <= path.checkpoint_loss)
    halve = ends & (few | stuck)
    path = path._replace(
        candidate=choose(halve, path.found.best_point, path.candidate),
        step_size=choose(halve, path.step_size / 2, path.step_size),
        increases=jnp.where(ends, 0, path.increases),
        checkpoint_loss=jnp.where(ends, best_loss, path.checkpoint_loss),
        halved=jnp.where(ends, halve, path.halved),
    )
    return path, choose(halve, path.best_gradient, gradient)


def window_lengths(num_steps: int) -> np.ndarray:
    """[num_steps + 1]: how many steps are in the window that step t ends; 0: it ends none.

    The first has 22 % of all steps, each later one 3 % of them less, but never below 6 %.
    """
    length, shorter, least = (max(share * num_steps // 100, 1) for share in (22, 3, 6))
    lengths, end = np.zeros(num_steps + 1, np.int32), length
    while end <= num_steps:
        lengths[end] = length
        length = max(length - shorter, least)
        end += length
    return lengths


def unseen(images: Array, start: Array) -> Ascent:
    """No point seen; the run begins at `start`."""
    lowest = jnp.full(len(images), -jnp.inf, images.dtype)
    return Ascent(images, jnp.zeros(len(images), bool), lowest, start)


def choose(condition: Array, yes: Array, no: Array) -> Array:
    """`yes` for the examples where `condition` [B] holds, `no` for the others."""
    return jnp.where(condition if yes.ndim == 1 else per_image(condition), yes, no)
