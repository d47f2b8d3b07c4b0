"""Computes all of the theory in one call, and lists its numbers as rows."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from cat_jax.theory import bounds, counterexamples, error_rates, learned, problems, trials
from cat_jax.theory.bounds import Terms
from cat_jax.theory.error_rates import Errors
from cat_jax.theory.learned import Measured
from cat_jax.theory.piecewise import PiecewiseLinear
from cat_jax.theory.plane_objectives import OBJECTIVES
from cat_jax.theory.problems import PROBLEMS, Problem
from cat_jax.types import PyTree

# Outputs and shift: one case where Theorem 1 fails, and two that repair it.
NEARBY = (("sign", 0.0), ("real", 0.0), ("sign", counterexamples.SHIFT))


class Budget(NamedTuple):
    """The amount of computation, and its seeds.

    Attributes:
      seed: seed of the points for training and trials, and of the random classifiers. The test
        points of trained networks have the next seed.
      num_classifiers: number of random classifiers, T.
      num_points: number of points of each problem that random classifiers are evaluated on.
      network_seeds: seeds of the networks' initial weights.
      num_train, num_test, num_steps: training points, test points and steps of the networks.
    """

    seed: int = 0
    num_classifiers: int = 1000
    num_points: int = 100
    network_seeds: tuple[int, ...] = (0, 1, 2)
    num_train: int = 150
    num_test: int = 500
    num_steps: int = 600


FULL = Budget()


class Theory(NamedTuple):
    """The result of `compute`.

    Attributes:
      budget: the argument of `compute`.
      classifiers: random classifiers.
      inclusions: Theorem 1 on the random classifiers, by problem and outputs.
      nearby: the errors of `counterexamples.oracle_nearby`, by outputs and shift.
      bounds: terms of Theorem 2 for the random classifiers, by problem and surrogate.
      two_points: the terms of `across` and `tilted`, by name and surrogate.
      networks: parameters of the trained networks, by problem and objective.
      measured: measurements of each seed, by problem and objective.
    """

    budget: Budget
    classifiers: list[PiecewiseLinear]
    inclusions: dict[tuple[str, str], trials.Inclusion]
    nearby: dict[tuple[str, float], Errors]
    bounds: dict[tuple[str, str], list[Terms]]
    two_points: dict[tuple[str, str], Terms]
    networks: dict[tuple[str, str], PyTree]
    measured: dict[tuple[str, str], list[Measured]]


def compute(budget: Budget = FULL) -> Theory:
    """Computes both theorems, their counterexamples, and the learned boundaries."""
    classifiers = trials.draw(budget.seed, budget.num_classifiers, problems.oracle())
    tried = {name: problems.make(name, budget.seed, budget.num_points) for name in PROBLEMS}
    crossed = counterexamples.crossed_only(tried["two_sided"])
    two_points = counterexamples.two_points()
    named = {"across": counterexamples.across(), "tilted": counterexamples.tilted()}
    networks = {(p, o): _fit(p, o, budget) for p in PROBLEMS for o in OBJECTIVES}
    return Theory(
        budget,
        classifiers,
        {
            ("two_sided", outputs): trials.inclusion(
                classifiers, tried["two_sided"], outputs=outputs
            )
            for outputs in error_rates.OUTPUTS
        },
        {(outputs, shift): _nearby(crossed, outputs, shift) for outputs, shift in NEARBY},
        {
            ("one_sided", surrogate): terms
            for surrogate, terms in trials.upper_bounds(classifiers, tried["one_sided"]).items()
        },
        {
            (name, surrogate): terms
            for name, f in named.items()
            for surrogate, terms in bounds.terms(f, two_points).items()
        },
        networks,
        {(p, o): _measure(params, p, o, budget) for (p, o), params in networks.items()},
    )


def train_problem(name: str, budget: Budget) -> Problem:
    """Returns the points that networks are trained on."""
    return problems.make(name, budget.seed, budget.num_train)


def rows(theory: Theory) -> Iterator[dict[str, Any]]:
    """Yields one row for each number: part, problem, case, quantity, value, trials."""

    def row(part: str, problem: str, case: str, quantity: str, values: Sequence[float]) -> Any:
        return {
            "part": part,
            "problem": problem,
            "case": case,
            "quantity": quantity,
            "value": f"{np.mean(values):.6g}",
            "least": f"{np.min(values):.6g}",
            "largest": f"{np.max(values):.6g}",
            "trials": len(values),
        }

    for (problem, outputs), inclusion in theory.inclusions.items():
        for name, value in inclusion._asdict().items():
            yield row("theorem1", problem, outputs, name, np.atleast_1d(value).tolist())
    for (outputs, shift), flags in theory.nearby.items():
        for name, flag in flags._asdict().items():
            case = f"{outputs}, shift {shift:g}"
            yield row("oracle_nearby", "two_sided, crossed", case, name, [float(np.mean(flag))])
    for (problem, surrogate), every in theory.bounds.items():
        for name in (*Terms._fields, "left", "proved", "stated", "repaired"):
            yield row("theorem2", problem, surrogate, name, [getattr(t, name) for t in every])
        for name, count in violations(every).items():
            yield row("theorem2", problem, surrogate, f"violations of {name}", [count])
    for (name, surrogate), terms in theory.two_points.items():
        for term in (*Terms._fields, "left", "proved", "stated", "repaired"):
            yield row(name, "two_points", surrogate, term, [getattr(terms, term)])
    for (problem, objective), networks in theory.measured.items():
        for quantity in Measured._fields:
            values = [getattr(network, quantity) for network in networks]
            yield row("learned", problem, objective, quantity, values)


def violations(every: Sequence[Terms]) -> dict[str, int]:
    """Counts the classifiers that exceed each bound; "robust" counts R_rob - R* above `stated`."""
    return {
        "proved": sum(t.left > t.proved + 1e-9 for t in every),
        "stated": sum(t.left > t.stated + 1e-9 for t in every),
        "repaired": sum(t.left > t.repaired + 1e-9 for t in every),
        "robust": sum(t.robust - t.least_risk > t.stated + 1e-9 for t in every),
    }


def _nearby(problem: Problem, outputs: str, shift: float) -> Errors:
    f = counterexamples.oracle_nearby(problem.oracle, shift=shift)
    return error_rates.exact(f, problem, outputs=outputs)


def _fit(problem: str, objective: str, budget: Budget) -> PyTree:
    return learned.fit(
        objective,
        train_problem(problem, budget),
        seeds=budget.network_seeds,
        num_steps=budget.num_steps,
    )


def _measure(params: PyTree, problem: str, objective: str, budget: Budget) -> list[Measured]:
    test = problems.make(problem, budget.seed + 1, budget.num_test)
    return [
        learned.measure(
            params, i, train_problem(problem, budget), test, masked=objective.startswith("cat")
        )
        for i in range(len(budget.network_seeds))
    ]
