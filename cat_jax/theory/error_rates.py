"""Computes robust errors of each example, bool [N], exactly or by dense search.

Their means are R_rob and R_cali. A product <= 0 is an error. It is never zero if outputs are in
{-1, +1}. With real outputs the boundary of f counts as an error for either label.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cat_jax.errors import check_choice
from cat_jax.theory import boxes
from cat_jax.theory.piecewise import Part, PiecewiseLinear, class_region, region, sign
from cat_jax.theory.problems import Problem

OUTPUTS = ("real", "sign")


class Errors(NamedTuple):
    """The errors of one classifier on the N examples of a problem, bool [N] each.

    Attributes:
      natural: f(x) y <= 0.
      robust: f(x') y <= 0 for some x' in the ball.
      calibrated: f(x') f_oracle(x') <= 0 for some x' in the ball.
      constrained: f(x') y <= 0 for some x' in the ball with f_oracle(x') = y, as in the paper's
        general objective.
    """

    natural: np.ndarray
    robust: np.ndarray
    calibrated: np.ndarray
    constrained: np.ndarray


def exact(f: PiecewiseLinear, problem: Problem, *, outputs: str = "real") -> Errors:
    """Returns the errors of a piecewise linear classifier, exact up to ties within `piecewise.TIE`.

    Args:
      f: the classifier's function F.
      problem: the points on which it is evaluated.
      outputs: "real": f = F; "sign": f is the class of F, in {-1, +1}.

    Raises:
      UsageError: if `outputs` is unknown.
    """
    is_real = check_choice("outputs", outputs, OUTPUTS) == "real"
    wrong = {  # Where f contradicts the true label, by that label.
        label: region(f, -label, is_open=False) if is_real else class_region(f, -label)
        for label in (-1, 1)
    }
    sides = {
        label: _meets(problem, wrong[label], class_region(problem.oracle, label))
        for label in (-1, 1)
    }
    anywhere = {label: _meets(problem, wrong[label], [None]) for label in (-1, 1)}
    values = f(problem.points) if is_real else sign(f(problem.points))
    return Errors(
        values * problem.labels <= 0,
        np.where(problem.labels > 0, anywhere[1], anywhere[-1]),
        sides[1] | sides[-1],
        np.where(problem.labels > 0, sides[1], sides[-1]),
    )


def dense(
    f: Callable[[np.ndarray], np.ndarray], problem: Problem, *, resolution: int = 41
) -> Errors:
    """Returns the errors that a grid in each ball finds, which may be too few but never too many.

    Args:
      f: points [..., 2] -> outputs [...], of any classifier.
      problem: the points on which it is evaluated.
      resolution: number of points along each axis of the grid. An odd number includes the centre.
        The grid can miss regions thinner than 2 epsilon / (resolution - 1), and misses zeros of
        real outputs between its points.
    """
    inside = in_ball(problem, resolution)
    outputs, truth = f(inside), sign(problem.oracle(inside))
    labels = problem.labels[:, None]
    wrong = outputs * labels <= 0
    return Errors(
        f(problem.points) * problem.labels <= 0,
        np.any(wrong, axis=1),
        np.any(outputs * truth <= 0, axis=1),
        np.any(wrong & (truth == labels), axis=1),
    )


def in_ball(problem: Problem, resolution: int) -> np.ndarray:
    """Returns a grid of points in the ball of each example, [N, resolution^2, 2]."""
    return problem.points[:, None, :] + problem.epsilon * offsets(resolution)


def offsets(resolution: int) -> np.ndarray:
    """Returns a grid on [-1, 1]^2, [resolution^2, 2]."""
    axis = np.linspace(-1, 1, resolution)
    return np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


def _meets(problem: Problem, wrong: list[Part], truth: list[Part] | list[None]) -> np.ndarray:
    """Returns whether a part of `wrong` meets one of `truth` (None: the plane) in each ball."""
    is_reached = np.zeros(len(problem.points), bool)
    for part in truth:
        parts = () if part is None else (part,)
        open_to = ~is_reached
        if part is not None:  # Because balls without any of it cannot meet it.
            open_to &= boxes.reaches(problem.points, problem.epsilon, part)
        for other in wrong:
            indices = np.flatnonzero(open_to & ~is_reached)
            if len(indices):
                points = problem.points[indices]
                is_reached[indices] = boxes.reaches(points, problem.epsilon, other, *parts)
    return is_reached
