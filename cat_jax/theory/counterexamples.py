"""Two classifiers that the theorems, as they are worded, do not cover."""

import numpy as np

from cat_jax.theory import problems
from cat_jax.theory.piecewise import PiecewiseLinear, sign
from cat_jax.theory.problems import Problem

FAR = 1.5  # An x2 beyond every ball.
SHIFT = 1e-3


def crossed_only(problem: Problem) -> Problem:
    """`problem` with the points alone whose balls the oracle's boundary crosses."""
    keep = problems.crossed(problem)
    return problem._replace(points=problem.points[keep], labels=problem.labels[keep])


def oracle_nearby(oracle: PiecewiseLinear, *, shift: float = 0.0) -> PiecewiseLinear:
    """The oracle below x2 = `FAR`, of class -1 above: not "exactly the same", yet so near the data.

    With outputs in {-1, +1} its calibrated robust error is 0, and on crossed balls its robust error
    is 1: Theorem 1 is false of it. It holds again if outputs are real, so that zeros on the
    boundary count, or if the boundary is moved at all, by a `shift` of the function, so that no
    piece is shared within a ball.
    """
    (rows,) = oracle.groups
    moved = rows + np.array([0.0, 0.0, shift])
    return PiecewiseLinear((np.concatenate([moved, [[0.0, -1.0, FAR]]]),))


def two_points() -> Problem:
    """One point of each class; the oracle's boundary, x2 = 1/2, crosses both balls."""
    oracle = PiecewiseLinear((np.array([[0.0, 1.0, -0.5]]),))
    points = np.array([[0.25, 0.55], [0.75, 0.45]])
    return Problem("two_points", points, sign(oracle(points)), oracle, epsilon=0.1)


def across() -> PiecewiseLinear:
    """On `two_points`: R_cali = 1, where Theorem 2 as stated promises almost 0.

    Its boundary is x1 = 1/2, between the balls: in each it gives one class, with a margin of 15 at
    least. So it is right wherever f_oracle(x') = y, and wrong behind the oracle's boundary, where
    the constrained maximum does not look. Its robust error, by the labels y, is 0.
    """
    return PiecewiseLinear((np.array([[-100.0, 0.0, 50.0]]),))


def tilted() -> PiecewiseLinear:
    """On `two_points`: R_rob = 1 too, and the same right-hand side is still almost 0.

    Its boundary is the oracle's with a slope of 1/10: it passes each ball behind the oracle's. So
    what the general objective lowers is a bound of neither error.
    """
    return PiecewiseLinear((np.array([[-100.0, 1000.0, -450.0]]),))
