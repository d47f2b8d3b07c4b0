"""Problems in the plane with a known oracle: points, their labels, and the true boundary."""

from typing import NamedTuple

import numpy as np

from cat_jax.errors import check_choice
from cat_jax.theory import boxes
from cat_jax.theory.piecewise import PiecewiseLinear, affine, class_region, sign

EPSILON = 0.1
TIP, SLOPE = 0.35, 0.6  # The oracle's boundary is the V: x2 = TIP + SLOPE |x1 - 0.5|.
HEIGHT = 0.35  # Largest distance of a point above or below the boundary.
GAP = 0.03  # Least distance to the boundary of a point, or of a ball that must not be crossed.
PROBLEMS = ("one_sided", "two_sided", "apart")


class Problem(NamedTuple):
    """The uniform distribution over N points with the oracle's labels.

    Attributes:
      name: name of the problem, one of `PROBLEMS` if `make` drew it.
      points: x, [N, 2], roughly in the unit square.
      labels: y, [N], -1 or +1.
      oracle: function whose `piecewise.sign` is the true label everywhere.
      epsilon: radius of the L-infinity balls, which may leave the unit square.
    """

    name: str
    points: np.ndarray
    labels: np.ndarray
    oracle: PiecewiseLinear
    epsilon: float = EPSILON


def make(name: str, seed: int, num_points: int) -> Problem:
    """Draws a problem.

    Args:
      name: "two_sided": the boundary crosses balls of both classes. "one_sided": it crosses balls
        of class +1 in the left half and of class -1 in the right half, as in the paper's first
        figure. "apart": it crosses no ball.
      seed: seed of the points.
      num_points: number of points, N.

    Raises:
      UsageError: if `name` is unknown.
    """
    check_choice("problem", name, PROBLEMS)
    rng = np.random.default_rng(seed)
    accepted = np.empty((0, 2))
    while len(accepted) < num_points:
        x1, height = rng.uniform(0, 1, 4 * num_points), rng.uniform(-HEIGHT, HEIGHT, 4 * num_points)
        points = np.stack([x1, boundary(x1) + height], axis=1)
        accepted = np.concatenate([accepted, points[_is_far_enough(name, points)]])
    points = accepted[:num_points]
    return Problem(name, points, sign(oracle()(points)), oracle())


def oracle() -> PiecewiseLinear:
    """Returns the true function, which is positive above the V."""
    left = [SLOPE, 1.0, -TIP - SLOPE / 2]
    right = [-SLOPE, 1.0, -TIP + SLOPE / 2]
    return PiecewiseLinear((np.array([left, right]),))


def boundary(x1: np.ndarray) -> np.ndarray:
    """Returns x2 of the oracle's boundary at x1."""
    return TIP + SLOPE * np.abs(x1 - 0.5)


def crossed(problem: Problem) -> np.ndarray:
    """Returns whether the oracle's boundary crosses each ball, bool [N]."""
    sides = [
        [
            boxes.reaches(problem.points, problem.epsilon, part)
            for part in class_region(problem.oracle, side)
        ]
        for side in (-1, 1)
    ]
    return np.any(sides[0], axis=0) & np.any(sides[1], axis=0)


def _is_far_enough(name: str, points: np.ndarray) -> np.ndarray:
    """Returns whether points are far enough from the boundary; conservative near the tip."""
    values = affine(oracle().rows, points)
    distance = np.abs(np.min(values, axis=1)) / (1 + SLOPE)
    near = np.full(len(points), name == "two_sided")
    if name == "one_sided":
        near = sign(np.min(values, axis=1)) == np.where(points[:, 0] < 0.5, 1, -1)
    return distance >= np.where(near, GAP, EPSILON + GAP)
