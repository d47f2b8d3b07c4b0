"""Problems in the plane whose oracle is known: points, their labels, and the true boundary."""

from typing import NamedTuple

import numpy as np

from cat_jax.errors import check_choice
from cat_jax.theory import boxes
from cat_jax.theory.piecewise import PiecewiseLinear, affine, class_region, sign

EPSILON = 0.1
TIP, SLOPE = 0.35, 0.6  # The oracle's boundary is the V: x2 = TIP + SLOPE |x1 - 0.5|.
HEIGHT = 0.35  # How far above and below the boundary points lie, at most.
GAP = 0.03  # How near a point may be to the boundary, or its ball if that shall not be crossed.
PROBLEMS = ("one_sided", "two_sided", "apart")


class Problem(NamedTuple):
    """The uniform distribution over N points, with labels that are the oracle's.

    Attributes:
      name: name of the problem, one of `PROBLEMS` if it is drawn.
      points: x, [N, 2], about the unit square.
      labels: y, [N], -1 or +1.
      oracle: its class, `piecewise.sign`, is the true label everywhere.
      epsilon: radius of the L-infinity balls. They are not cut at the unit square.
    """

    name: str
    points: np.ndarray
    labels: np.ndarray
    oracle: PiecewiseLinear
    epsilon: float = EPSILON


def make(name: str, seed: int, num_points: int) -> Problem:
    """Draws a problem.

    Args:
      name: "two_sided": the boundary crosses balls of both classes; "one_sided": of class +1 in the
        left half and of class -1 in the right half, where the other class keeps away, as in the
        paper's first figure; "apart": of no point.
      seed: seed of the points.
      num_points: N.

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
    """The true function: positive above the V."""
    left = [SLOPE, 1.0, -TIP - SLOPE / 2]
    right = [-SLOPE, 1.0, -TIP + SLOPE / 2]
    return PiecewiseLinear((np.array([left, right]),))


def boundary(x1: np.ndarray) -> np.ndarray:
    """The x2 at which the oracle's boundary passes x1."""
    return TIP + SLOPE * np.abs(x1 - 0.5)


def crossed(problem: Problem) -> np.ndarray:
    """Does the oracle's boundary cross the ball: does it hold both true labels? bool [N]."""
    sides = [
        [
            boxes.reaches(problem.points, problem.epsilon, part)
            for part in class_region(problem.oracle, side)
        ]
        for side in (-1, 1)
    ]
    return np.any(sides[0], axis=0) & np.any(sides[1], axis=0)


def _is_far_enough(name: str, points: np.ndarray) -> np.ndarray:
    """Whether points keep their class's distance; near the tip this underestimates it."""
    values = affine(oracle().rows, points)
    distance = np.abs(np.min(values, axis=1)) / (1 + SLOPE)
    near = np.full(len(points), name == "two_sided")
    if name == "one_sided":
        near = sign(np.min(values, axis=1)) == np.where(points[:, 0] < 0.5, 1, -1)
    return distance >= np.where(near, GAP, EPSILON + GAP)
