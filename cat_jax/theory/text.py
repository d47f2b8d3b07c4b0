"""The theory's numbers in words: sections of text and tables, and a CSV file of all of them."""

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
LEARNED = {  # The fields of `Measured` in the table, and their heads.
    "natural": "natural error",
    "robust": "R_rob",
    "calibrated": "R_cali",
    "constrained": "constrained",
    "distance": "distance",
}


class Section(NamedTuple):
    """A part of the page: paragraphs, with `code` marked, and tables."""

    title: str
    blocks: Sequence[str | Grid]


def table(theory: Theory) -> str:
    """Every number, as CSV."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(theory))
    return stream.getvalue()


def page(theory: Theory) -> str:
    """The title, the caption and the sections, as Markdown."""
    paragraphs = [f"# {TITLE}", caption(theory.budget)]
    for title, blocks in sections(theory):
        texts = (grids.markdown_table(b) if isinstance(b, Grid) else b for b in blocks)
        paragraphs += [f"## {title}", *texts]
    return "\n\n".join(paragraphs) + "\n"


def caption(budget: Budget) -> str:
    """How much was computed, from which seeds."""
    return (
        f"Points of the plane, L-infinity balls of radius {EPSILON}; seed {budget.seed}, "
        f"{budget.num_classifiers} random piecewise linear classifiers on {budget.num_points} "
        f"points, networks from seeds {', '.join(map(str, budget.network_seeds))} trained on "
        f"{budget.num_train} points for {budget.num_steps} steps, tested on {budget.num_test}."
    )


def sections(theory: Theory) -> list[Section]:
    """Both theorems and the learned boundaries."""
    return [_theorem_1(theory), _theorem_2(theory), _learned(theory)]


def _theorem_1(theory: Theory) -> Section:
    head = [
        "outputs",
        "R_rob",
        "R_cali",
        "balls crossed",
        "examples in R_rob and not in R_cali",
        "examples where R_cali is not R_rob or a crossed ball",
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
            "Random classifiers, none with a line of its boundary in common with the oracle's: "
            "mean (least to largest).",
            Grid("random", "", head, random),
            "Where the theorem holds, the calibrated robust error is exactly a robust error or a "
            "crossed ball: no classifier has less of it than there are crossed balls, and on "
            "those it says nothing of f.",
            "A classifier that is the oracle near the data and differs far away, on points whose "
            "balls the oracle's boundary crosses. With outputs in {-1, +1} the theorem is false "
            "of it; real outputs, whose zeros count, or any shift of the boundary repair that.",
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
    head = ["phi", "whole ball", "as stated", "repaired", "R_rob, as stated", "largest excess"]
    two = [
        [name, surrogate, *(f"{value:.2g}" for value in (t.robust, t.left, t.stated, t.repaired))]
        for (name, surrogate), t in theory.two_points.items()
    ]
    heads = ["classifier", "phi", "R_rob", "R_cali - R*", "as stated", "repaired"]
    return Section(
        "Theorem 2: the upper bound",
        [
            "How many random classifiers have R_cali - R* above: the bound with the maximum over "
            "the whole ball, which the proof shows; the stated one, over f_oracle(X') = Y; the "
            "share of crossed balls plus that maximum. Then how many have R_rob - R* above the "
            "stated bound, and by how much the stated bound is exceeded.",
            Grid("counts", "", head, counts),
            "Two points, two classifiers that are right wherever f_oracle(X') = Y:",
            Grid("two_points", "", heads, two),
        ],
    )


def _learned(theory: Theory) -> Section:
    blocks: list[str | Grid] = [
        "`standard`: phi(f(X) Y). The others add a maximum over the ball: `unconstrained` of "
        "phi(f(X') Y), `trades` of phi(f(X') f(X)), `general` of phi(f(X') Y) where f_oracle(X') "
        "= Y. `cat` has the losses of CAT, and a mask network in place of the constraint.",
        "Errors on test points, and the mean distance from the oracle's boundary in units of "
        'epsilon: means over the seeds (least to largest). M and "beyond": the mask, and the '
        "shares of x' and x'_cali that the oracle gives another class than x.",
    ]
    for problem in PROBLEMS:
        networks = {o: of_seeds for (p, o), of_seeds in theory.measured.items() if p == problem}
        crossed = next(iter(networks.values()))[0].crossed
        head = ["objective", *LEARNED.values(), "M", "x' beyond", "x'_cali beyond"]
        body = [[objective, *_cells(of_seeds)] for objective, of_seeds in networks.items()]
        grid = Grid(problem, "", head, body)
        blocks += [f"`{problem}`, {crossed:.3f} of the balls crossed:", grid]
    return Section("Learned boundaries", blocks)


def _cells(networks: Sequence[Measured]) -> Iterable[str]:
    for name in LEARNED:
        yield _spread([getattr(measured, name) for measured in networks], digits=3)
    for name in ("mean_mask", "adversarial_beyond", "calibrated_beyond"):
        value = np.mean([getattr(measured, name) for measured in networks])
        yield "-" if np.isnan(value) else f"{value:.2f}"


def _spread(values: Sequence[float] | np.ndarray, digits: int = 2) -> str:
    mean, low, high = (f"{f(values):.{digits}f}" for f in (np.mean, np.min, np.max))
    return f"{mean} ({low} to {high})" if low != high else mean
