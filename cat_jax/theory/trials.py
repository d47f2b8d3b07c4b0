"""Tries both theorems on many random classifiers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cat_jax.theory import bounds, error_rates, problems
from cat_jax.theory.bounds import Terms
from cat_jax.theory.piecewise import PiecewiseLinear, shares_line
from cat_jax.theory.problems import Problem

# Sizes of a classifier's groups: a line, maxima, minima, a maximum of minima.
FORMS = ((1,), (1, 1), (1, 1, 1), (2,), (3,), (2, 2))


class Inclusion(NamedTuple):
    """Theorem 1 on T classifiers.

    Attributes:
      robust: R_rob, [T].
      calibrated: R_cali, [T].
      crossed: share of balls that the oracle's boundary crosses.
      outside: number of examples, over all classifiers, with a robust error but no calibrated one;
        0 by the theorem.
      unequal: number of examples whose calibrated error is neither a robust error nor a crossed
        ball.
    """

    robust: np.ndarray
    calibrated: np.ndarray
    crossed: float
    outside: int
    unequal: int


def draw(seed: int, num_classifiers: int, oracle: PiecewiseLinear) -> list[PiecewiseLinear]:
    """Draws random piecewise linear classifiers; every second one is a disturbed oracle.

    No boundary shares a line with the oracle's.
    """
    rng = np.random.default_rng(seed)
    accepted: list[PiecewiseLinear] = []
    while len(accepted) < num_classifiers:
        i = len(accepted)
        f = _near(rng, oracle) if i % 2 else _anywhere(rng, FORMS[i // 2 % len(FORMS)])
        if not shares_line(f, oracle):
            accepted.append(f)
    return accepted


def inclusion(
    classifiers: Sequence[PiecewiseLinear], problem: Problem, *, outputs: str = "real"
) -> Inclusion:
    """Evaluates Theorem 1 exactly on each example of `problem` for each classifier."""
    crossed = problems.crossed(problem)
    errors = [error_rates.exact(f, problem, outputs=outputs) for f in classifiers]
    robust = np.array([e.robust for e in errors])
    calibrated = np.array([e.calibrated for e in errors])
    return Inclusion(
        robust.mean(axis=1),
        calibrated.mean(axis=1),
        float(crossed.mean()),
        int(np.sum(robust & ~calibrated)),
        int(np.sum(calibrated != (robust | crossed))),
    )


def upper_bounds(
    classifiers: Sequence[PiecewiseLinear], problem: Problem, *, noise: float = 0.0
) -> dict[str, list[Terms]]:
    """Returns the terms of Theorem 2 for each classifier, by surrogate."""
    terms = [bounds.terms(f, problem, noise=noise) for f in classifiers]
    return {name: [of_f[name] for of_f in terms] for name in bounds.SURROGATES}


def _anywhere(rng: np.random.Generator, sizes: Sequence[int]) -> PiecewiseLinear:
    """Draws lines through the unit square, of steepness 1 to 100."""
    scale = 10 ** rng.uniform(0, 2)
    groups = []
    for size in sizes:
        slopes = rng.normal(size=(size, 2))
        through = rng.uniform(0, 1, (size, 2))
        offset = -np.sum(slopes * through, axis=1, keepdims=True)
        groups.append(scale * np.concatenate([slopes, offset], axis=1))
    return PiecewiseLinear(tuple(groups))


def _near(rng: np.random.Generator, oracle: PiecewiseLinear) -> PiecewiseLinear:
    """Draws the oracle's lines, disturbed by 0.001 to 0.3, of steepness 1 to 100."""
    scale, disturbance = 10 ** rng.uniform(0, 2), 10 ** rng.uniform(-3, -0.5)
    groups = (rows + disturbance * rng.normal(size=rows.shape) for rows in oracle.groups)
    return PiecewiseLinear(tuple(scale * rows for rows in groups))
