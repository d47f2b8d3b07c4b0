"""Computes Theorem 2's upper bound, term by term, for piecewise linear classifiers."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cat_jax.theory import boxes, error_rates, problems
from cat_jax.theory.piecewise import PiecewiseLinear, region
from cat_jax.theory.problems import Problem


class Surrogate(NamedTuple):
    """A convex surrogate loss phi with phi(0) = 1, and its transform (Bartlett et al. 2006).

    Attributes:
      phi: margins z -> losses; decreasing, so that phi(z) >= 1 where z <= 0.
      psi: [0, 1] -> [0, 1], with psi(R(f) - R*) <= R_phi(f) - R_phi*.
      least_risk: min over f of R_phi(f), where labels are flipped with this probability.
    """

    phi: Callable[[np.ndarray], np.ndarray]
    psi: Callable[[float], float]
    least_risk: Callable[[float], float]

    def psi_inverse(self, excess: float) -> float:
        """Returns psi^-1(excess) by bisection, and 1, the largest excess risk, from psi(1) on."""
        if excess <= 0:
            return 0.0
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.psi(middle) <= excess else (low, middle)
        return high


def _entropy(p: float) -> float:
    """Returns the entropy of a coin, in bits."""
    return float(sum(-q * np.log2(q) for q in (p, 1 - p) if q > 0))


HINGE = Surrogate(lambda z: np.maximum(0.0, 1.0 - z), lambda t: t, lambda p: 2 * min(p, 1 - p))
LOGISTIC = Surrogate(
    lambda z: np.logaddexp(0.0, -z) / np.log(2), lambda t: 1 - _entropy((1 + t) / 2), _entropy
)
SURROGATES = {"hinge": HINGE, "logistic": LOGISTIC}


class Terms(NamedTuple):
    """The terms of Theorem 2 for one classifier with real outputs, and the bounds that they give.

    Attributes:
      calibrated: R_cali(f).
      robust: R_rob(f), by the true labels.
      risk: R(f), the share of f(X) Y <= 0.
      least_risk: R*.
      phi_risk: R_phi(f).
      least_phi_risk: R_phi*.
      transferred: psi^-1(R_phi(f) - R_phi*), which is at least R(f) - R*.
      complete: E max over the ball of phi(f(X') f_oracle(X')), as in the proof's last line but one.
      constrained: E max over X' in the ball with f_oracle(X') = Y of phi(f(X') Y), as stated; 0
        where the ball has no such X'.
      crossed: the share of balls that the oracle's boundary crosses.
    """

    calibrated: float
    robust: float
    risk: float
    least_risk: float
    phi_risk: float
    least_phi_risk: float
    transferred: float
    complete: float
    constrained: float
    crossed: float

    @property
    def left(self) -> float:
        """R_cali(f) - R*, which the theorem bounds."""
        return self.calibrated - self.least_risk

    @property
    def proved(self) -> float:
        """The bound that the proof shows before its last step."""
        return self.transferred + self.complete

    @property
    def stated(self) -> float:
        """The bound as the theorem states it."""
        return self.transferred + self.constrained

    @property
    def repaired(self) -> float:
        """A bound that keeps the constraint and counts each crossed ball as an error."""
        return self.crossed + self.constrained


def terms(f: PiecewiseLinear, problem: Problem, *, noise: float = 0.0) -> dict[str, Terms]:
    """Returns the exact terms under each of `SURROGATES`.

    Args:
      f: the classifier.
      problem: the uniform distribution over its points.
      noise: probability, at most 1/2, that Y is not the oracle's label.
    """
    errors = error_rates.exact(f, problem)
    same, other = least_products(f, problem)
    true_margins = f(problem.points) * problem.labels
    crossed = float(np.mean(problems.crossed(problem)))

    def expected(true: np.ndarray, flipped: np.ndarray) -> float:
        return float(np.mean((1 - noise) * true + noise * flipped))

    def of(surrogate: Surrogate) -> Terms:
        phi_risk = expected(surrogate.phi(true_margins), surrogate.phi(-true_margins))
        least_phi_risk = surrogate.least_risk(noise)
        return Terms(
            calibrated=float(np.mean(errors.calibrated)),
            robust=float(np.mean(errors.robust)),
            risk=expected(true_margins <= 0, -true_margins <= 0),
            least_risk=min(noise, 1 - noise),
            phi_risk=phi_risk,
            least_phi_risk=least_phi_risk,
            transferred=surrogate.psi_inverse(phi_risk - least_phi_risk),
            complete=float(np.mean(surrogate.phi(np.minimum(same, other)))),
            constrained=expected(surrogate.phi(same), surrogate.phi(other)),
            crossed=crossed,
        )

    return {name: of(surrogate) for name, surrogate in SURROGATES.items()}


def least_products(f: PiecewiseLinear, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Returns the least f(x') f_oracle(x') in each ball where f_oracle(x') = y, and elsewhere.

    Both are [N], and +inf where the ball has no such x'. phi decreases, so it is largest there.
    """
    plus, minus = (
        np.min(
            [
                boxes.least(f, problem.points, problem.epsilon, side, part)
                for part in region(problem.oracle, side, is_open=False)
            ],
            axis=0,
        )
        for side in (1, -1)
    )
    is_plus = problem.labels > 0
    return np.where(is_plus, plus, minus), np.where(is_plus, minus, plus)
