"""The theory's numbers as text: sections with tables, and a CSV file of all numbers."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from cat_jax.report import grids
from cat_jax.report.grids import Grid
from cat_jax.theory.learned import Measured
from cat_jax.theory.problems import EPSILON, PROBLEMS
from cat_jax.theory.summary import Budget, Theory, rows, violations

TITLE = "The theory in the plane"
COLUMNS = ("part", "problem", "case", "quantity", "value", "least", "largest", "trials")
LEARNED = {  # The fields of `Measured` in the table, and the headings of their columns.
    "natural": "natural error",
    "robust": "R_rob",
    "calibrated": "R_cali",
    "constrained": "R_rob where f_oracle(X') = Y",
    "distance": "distance",
}
MASKS = {
    "mean_mask": "mean of M",
    "adversarial_beyond": "x' of another class",
    "calibrated_beyond": "x'_cali of another class",
}


class Section(NamedTuple):
    """A part of the page: its title, and its paragraphs and tables in order."""

    title: str
    blocks: Sequence[str | Grid]


def table(theory: Theory) -> str:
    """Returns every number as CSV."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(theory))
    return stream.getvalue()


def page(theory: Theory) -> str:
    """Returns the title, the caption and the sections as Markdown."""
    paragraphs = [f"# {TITLE}", caption(theory.budget)]
    for title, blocks in sections(theory):
        texts = (grids.markdown_table(b) if isinstance(b, Grid) else b for b in blocks)
        paragraphs += [f"## {title}", *texts]
    return "\n\n".join(paragraphs) + "\n"


def caption(budget: Budget) -> str:
    """States how much was computed, and from which seeds."""
    return (
        "This page computes the paper's two theorems on points of the plane with L-infinity balls "
        f"of radius {EPSILON}. It evaluates {budget.num_classifiers} random piecewise linear "
        f"classifiers on {budget.num_points} points (seed {budget.seed}). It trains networks on "
        f"{budget.num_train} points for {budget.num_steps} steps (seeds "
        f"{', '.join(map(str, budget.network_seeds))}) and tests them on {budget.num_test} points."
    )


def sections(theory: Theory) -> list[Section]:
    """Returns a section for each theorem and one for the learned boundaries."""
    return [_theorem_1(theory), _theorem_2(theory), _learned(theory)]


def _theorem_1(theory: Theory) -> Section:
    head = [
        "outputs",
        "R_rob",
        "R_cali",
        "share of balls crossed",
        "examples in R_rob but not in R_cali",
        "examples where R_cali is neither R_rob nor a crossed ball",
    ]
    random = [
        [
            outputs,
            _spread(inclusion.robust),
            _spread(inclusion.calibrated),
            f"{inclusion.crossed:.2f}",
            str(inclusion.outside),
            str(inclusion.unequal),
        ]
        for (_, outputs), inclusion in theory.inclusions.items()
    ]
    nearby = [
        [outputs, f"{shift:g}", f"{np.mean(flags.robust):.2f}", f"{np.mean(flags.calibrated):.2f}"]
        for (outputs, shift), flags in theory.nearby.items()
    ]
    return Section(
        "Theorem 1: R_rob <= R_cali",
        [
            "The theorem holds for random classifiers whose boundaries share no line with the "
            "oracle's. The table gives the mean over the classifiers (least to largest). A ball "
            "is crossed if the oracle's boundary passes through it.",
            Grid("random", "", head, random),
            "Where the theorem holds, an example has a calibrated robust error exactly if it has a "
            "robust error or a crossed ball. So R_cali is at least the share of crossed balls for "
            "every classifier, and on a crossed ball it does not depend on f.",
            "The theorem fails for a classifier that equals the oracle near the data and differs "
            "far away, if its outputs are in {-1, +1} and the oracle's boundary crosses the balls. "
            "Real outputs repair it, because zeros then count as errors. So does any shift of the "
            "boundary.",
            Grid("nearby", "", ["outputs", "shift", "R_rob", "R_cali"], nearby),
        ],
    )


def _theorem_2(theory: Theory) -> Section:
    counts = [
        [
            surrogate,
            *(f"{count} of {len(every)}" for count in violations(every).values()),
            f"{max(t.left - t.stated for t in every):.2f}",
        ]
        for (_, surrogate), every in theory.bounds.items()
    ]
    head = ["phi", "proved", "stated", "repaired", "R_rob above stated", "largest excess"]
    two = [
        [name, surrogate, *(f"{value:.2g}" for value in (t.robust, t.left, t.stated, t.repaired))]
        for (name, surrogate), t in theory.two_points.items()
    ]
    heads = ["classifier", "phi", "R_rob", "R_cali - R*", "stated bound", "repaired bound"]
    return Section(
        "Theorem 2: the upper bound",
        [
            "The theorem bounds `R_cali - R*`. The first three columns count the random "
            "classifiers that exceed a bound. `proved` takes the maximum over the complete ball, "
            "as the proof does up to its last line. `stated` takes it where f_oracle(X') = Y. "
            "`repaired` adds the share of crossed balls to that maximum. The next column counts "
            "the classifiers whose `R_rob - R*` exceeds the stated bound, and the last gives the "
            "largest excess of `R_cali - R*` over it.",
            Grid("counts", "", head, counts),
            "Two classifiers on two points exceed the stated bound by 1. Both are correct wherever "
            "f_oracle(X') = Y.",
            Grid("two_points", "", heads, two),
        ],
    )


def _learned(theory: Theory) -> Section:
    blocks: list[str | Grid] = [
        "`standard` minimises phi(f(X) Y). The other objectives add a maximum over the ball: "
        "`unconstrained` of phi(f(X') Y), `trades` of phi(f(X') f(X)), and `general` of "
        "phi(f(X') Y) where f_oracle(X') = Y. `cat` has the losses of CAT, with a mask network "
        "instead of the constraint.",
        "The tables give errors on test points as means over the seeds (least to largest). The "
        "distance is the mean distance from the oracle's boundary in units of epsilon. The last "
        "two columns give the shares of x' and x'_cali that the oracle puts into another class "
        "than x.",
    ]
    for problem in PROBLEMS:
        networks = {o: of_seeds for (p, o), of_seeds in theory.measured.items() if p == problem}
        crossed = next(iter(networks.values()))[0].crossed
        head = ["objective", *LEARNED.values(), *MASKS.values()]
        body = [[objective, *_cells(of_seeds)] for objective, of_seeds in networks.items()]
        grid = Grid(problem, "", head, body)
        blocks += [
            f"On `{problem}` the oracle's boundary crosses {crossed:.1%} of the balls.",
            grid,
        ]
    return Section("Learned boundaries", blocks)


def _cells(networks: Sequence[Measured]) -> Iterable[str]:
    for name in LEARNED:
        yield _spread([getattr(measured, name) for measured in networks], digits=3)
    for name in MASKS:
        value = np.mean([getattr(measured, name) for measured in networks])
        yield "-" if np.isnan(value) else f"{value:.2f}"


def _spread(values: Sequence[float] | np.ndarray, digits: int = 2) -> str:
    mean, low, high = (f"{f(values):.{digits}f}" for f in (np.mean, np.min, np.max))
    return f"{mean} ({low} to {high})" if low != high else mean
