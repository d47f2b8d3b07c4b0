"""Classifiers for which the theorems fail as stated."""

import numpy as np

from cat_jax.theory import problems
from cat_jax.theory.piecewise import PiecewiseLinear, sign
from cat_jax.theory.problems import Problem

FAR = 1.5  # An x2 beyond every ball.
SHIFT = 1e-3


def crossed_only(problem: Problem) -> Problem:
    """Returns `problem` with only those points whose balls the oracle's boundary crosses."""
    keep = problems.crossed(problem)
    return problem._replace(points=problem.points[keep], labels=problem.labels[keep])


def oracle_nearby(oracle: PiecewiseLinear, *, shift: float = 0.0) -> PiecewiseLinear:
    """Returns a classifier that is the oracle below x2 = `FAR`, and of class -1 above.

    It differs from the oracle, but not near the data. With outputs in {-1, +1} its calibrated
    robust error is 0, and its robust error on crossed balls is 1, so Theorem 1 fails. The theorem
    holds again if outputs are real, because zeros on the boundary then count, or if a `shift` moves
    the boundary, because no ball then contains a shared piece.
    """
    (rows,) = oracle.groups
    moved = rows + np.array([0.0, 0.0, shift])
    return PiecewiseLinear((np.concatenate([moved, [[0.0, -1.0, FAR]]]),))


def two_points() -> Problem:
    """Returns one point of each class; the oracle's boundary, x2 = 1/2, crosses both balls."""
    oracle = PiecewiseLinear((np.array([[0.0, 1.0, -0.5]]),))
    points = np.array([[0.25, 0.55], [0.75, 0.45]])
    return Problem("two_points", points, sign(oracle(points)), oracle, epsilon=0.1)


def across() -> PiecewiseLinear:
    """Returns a classifier with R_cali = 1 on `two_points`, where the stated bound is almost 0.

    Its boundary is x1 = 1/2, between the balls. In each ball it gives one class with a margin of at
    least 15. So it is correct wherever f_oracle(x') = y, and wrong behind the oracle's boundary,
    which the constrained maximum leaves out. Its robust error is 0.
    """
    return PiecewiseLinear((np.array([[-100.0, 0.0, 50.0]]),))


def tilted() -> PiecewiseLinear:
    """Returns a classifier with R_rob = R_cali = 1 on `two_points` and a stated bound near 0.

    Its boundary is the oracle's with a slope of 1/10, and passes each ball behind the oracle's. So
    the general objective minimises a bound of neither error.
    """
    return PiecewiseLinear((np.array([[-100.0, 1000.0, -450.0]]),))
