"""Draws the theory with matplotlib: the paper's first figure, boundaries, counterexamples.

No other module of the theory imports matplotlib, so that computing needs none.
"""

import pathlib
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cat_jax.storage import files
from cat_jax.theory import counterexamples, learned, problems
from cat_jax.theory.plane_objectives import OBJECTIVES
from cat_jax.theory.problems import PROBLEMS, Problem
from cat_jax.theory.summary import Theory, train_problem

Function = Callable[[np.ndarray], np.ndarray]

CLASS_COLOURS = {1: "tab:blue", -1: "tab:red"}
COLOURS = dict(
    zip(
        OBJECTIVES,
        ("grey", "tab:red", "tab:purple", "tab:green", "tab:orange", "tab:brown"),
        strict=True,
    )
)
TITLES = {
    "one_sided": "crossed from one side",
    "two_sided": "crossed from both sides",
    "apart": "not crossed",
}
COMPARED = {  # The objectives in each row of panels, by the row's name.
    "Constraint": ("standard", "unconstrained", "trades", "general"),
    "Mask": ("unconstrained", "general", "cat(beta1=0.3)", "cat(beta1=1)"),
}
MESH = 301  # Points along each axis of the mesh on which boundaries are found.
NUM_BALLS = 28  # More balls would hide each other.


def save(theory: Theory, folder: pathlib.Path) -> list[pathlib.Path]:
    """Draws every picture into `folder` and returns the paths."""
    figures = {
        "theory_balls.png": balls(theory),
        "theory_boundaries.png": boundaries(theory),
        "theory_counterexamples.png": two_counterexamples(theory),
        "theory_bounds.png": bounds(theory),
    }
    for name, figure in figures.items():
        with files.replacing(folder / name) as temporary:
            figure.savefig(temporary, format="png", dpi=120)
    return [folder / name for name in figures]


def balls(theory: Theory) -> Figure:
    """Draws the paper's first figure: points, balls, the oracle's and two learned boundaries."""
    problem = train_problem("one_sided", theory.budget)
    shown = problem._replace(points=problem.points[:NUM_BALLS], labels=problem.labels[:NUM_BALLS])
    extent = (-0.1, 1.1, 0, 1.05)
    figure = Figure(figsize=(7.5, 6.5), layout="constrained")
    axes = figure.subplots()
    _draw_points(axes, shown, crossed=problems.crossed(shown))
    _draw_boundary(axes, problem.oracle, "black", "oracle's boundary", extent=extent)
    for objective in ("unconstrained", "general"):
        f = learned.classify(theory.networks["one_sided", objective], 0)
        label = f"learned: {objective}"
        _draw_boundary(axes, f, COLOURS[objective], label, "--", extent=extent)
    _finish(axes, "Balls that the oracle's boundary crosses are filled", extent=extent)
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def boundaries(theory: Theory) -> Figure:
    """Draws the boundary that each objective learns from each seed, on each problem.

    All panels share one legend, below them.
    """
    figure = Figure(figsize=(11, 8.4), layout="constrained")
    grid = figure.subplots(2, len(PROBLEMS), sharex=True, sharey=True)
    for row, (heading, objectives) in zip(grid, COMPARED.items(), strict=True):
        for axes, name in zip(row, PROBLEMS, strict=True):
            _draw_learned(axes, name, objectives, theory)
            axes.set_title(f"{heading}: balls {TITLES[name]}", fontsize=10)
            axes.label_outer()
    handles = {
        label: handle
        for axes in grid[:, 0]
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=5)
    return figure


def _draw_learned(axes: Axes, name: str, objectives: Sequence[str], theory: Theory) -> None:
    """Draws one problem: its points, the oracle, and a line for each objective and seed."""
    problem = train_problem(name, theory.budget)
    for label, colour in CLASS_COLOURS.items():
        points = problem.points[problem.labels == label]
        axes.plot(*points.T, ".", color=colour, alpha=0.4, label=f"y = {label:+d}")
    _draw_boundary(axes, problem.oracle, "black", "oracle", width=3)
    for objective in objectives:
        style = "--" if objective == "general" else "-"  # Dashed because it can hide another line.
        for i, _ in enumerate(theory.budget.network_seeds):
            f = learned.classify(theory.networks[name, objective], i)
            name_once = "" if i else objective
            _draw_boundary(axes, f, COLOURS[objective], name_once, style, width=1.5)
    _finish(axes, "", extent=(0, 1, 0, 1))
    axes.plot([0.05, 0.05 + 2 * problem.epsilon], [0.03, 0.03], color="black", lw=1)
    axes.text(0.05, 0.045, "width of a ball", fontsize=9)


def two_counterexamples(theory: Theory) -> Figure:
    """Draws the counterexample to each theorem as stated."""
    figure = Figure(figsize=(11, 6.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_nearby(left, theory)
    _draw_two_points(right, theory)
    return figure


def bounds(theory: Theory) -> Figure:
    """Draws the random classifiers: R_rob against R_cali, and R_cali - R* against the bound."""
    figure = Figure(figsize=(11, 5.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    inclusion = theory.inclusions["two_sided", "real"]
    _scatter(left, inclusion.calibrated, inclusion.robust)
    left.plot([0, 1], [0, 1], color="black", label="R_rob = R_cali")
    left.axvline(inclusion.crossed, color="grey", ls=":", label="share of balls crossed")
    left.set(xlabel="calibrated robust error R_cali", ylabel="robust error R_rob")
    above = np.sum(inclusion.robust > inclusion.calibrated)
    left.set(title=f"Theorem 1: {above} of {inclusion.robust.size} classifiers above the diagonal")
    every = theory.bounds["one_sided", "hinge"]
    stated, calibrated = (np.array([getattr(t, k) for t in every]) for k in ("stated", "left"))
    _scatter(right, stated, calibrated)
    over = calibrated > stated + 1e-9
    right.plot(stated[over], calibrated[over], "x", color="tab:red", zorder=3, label="above it")
    right.set_xscale("log")
    line = np.geomspace(stated.min(), 1, 50)
    right.plot(line, line, color="black", label="R_cali - R* = stated bound")
    right.set(xlabel="bound as stated, hinge loss", ylabel="R_cali - R*")
    right.set(title=f"Theorem 2 as stated: {over.sum()} of {over.size} classifiers above it")
    for axes in (left, right):
        _legend_below(axes)
        axes.grid(alpha=0.3)
    return figure


def _draw_nearby(axes: Axes, theory: Theory) -> None:
    tried = problems.make("two_sided", theory.budget.seed, theory.budget.num_points)
    crossed = counterexamples.crossed_only(tried)
    few = crossed._replace(points=crossed.points[:12], labels=crossed.labels[:12])
    nearby = counterexamples.oracle_nearby(crossed.oracle)
    extent = (-0.2, 1.2, 0.1, counterexamples.FAR + 0.2)
    _draw_points(axes, few)
    _shade_difference(axes, nearby, crossed.oracle, extent)
    _draw_boundary(axes, crossed.oracle, "black", "oracle's boundary", width=4, extent=extent)
    _draw_boundary(axes, nearby, "tab:orange", "classifier's boundary", "--", extent=extent)
    axes.text(-0.1, 1.0, "near the data both boundaries are equal")
    axes.text(-0.1, counterexamples.FAR + 0.07, "grey: f and f_oracle differ")
    flags = theory.nearby["sign", 0.0]
    rates = f"R_rob = {np.mean(flags.robust):g}, R_cali = {np.mean(flags.calibrated):g}"
    _finish(axes, f"Theorem 1, outputs in {{-1, +1}}: {rates}", extent=extent)
    _legend_below(axes)


def _draw_two_points(axes: Axes, theory: Theory) -> None:
    pair, extent = counterexamples.two_points(), (0.1, 0.9, 0.05, 0.8)
    named = {"across": counterexamples.across(), "tilted": counterexamples.tilted()}
    _draw_points(axes, pair)
    _shade_difference(axes, named["across"], pair.oracle, extent)
    _draw_boundary(axes, pair.oracle, "black", "oracle's boundary", width=3, extent=extent)
    for (name, f), colour in zip(named.items(), ("tab:orange", "tab:green"), strict=True):
        terms = theory.two_points[name, "hinge"]
        rates = f"R_rob {terms.robust:g}, R_cali {terms.calibrated:g}"
        label = f"{name}: {rates}, stated bound {terms.stated:.0f}"
        _draw_boundary(axes, f, colour, label, "--", extent=extent)
    _finish(axes, "Theorem 2, hinge loss (grey: `across` and f_oracle differ)", extent=extent)
    axes.set_aspect("equal")
    _legend_below(axes)


def _legend_below(axes: Axes) -> None:
    """A legend below the axes, where it covers nothing."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, fontsize=9)


def _scatter(axes: Axes, x: np.ndarray, y: np.ndarray) -> None:
    near = np.arange(len(x)) % 2 == 1  # Because `trials.draw` alternates.
    axes.plot(x[~near], y[~near], ".", alpha=0.5, label="anywhere", color="tab:blue")
    axes.plot(x[near], y[near], ".", alpha=0.5, label="near the oracle", color="tab:orange")


def _draw_points(axes: Axes, problem: Problem, crossed: np.ndarray | None = None) -> None:
    """Draws points and balls by class; the balls of `crossed`, or all, are filled."""
    for label, colour in CLASS_COLOURS.items():
        of_class = problem.labels == label
        axes.plot(*problem.points[of_class].T, ".", color=colour, label=f"y = {label:+d}")
        filled = of_class if crossed is None else of_class & crossed
        for chosen, alpha in ((of_class & ~filled, 0.0), (filled, 0.18)):
            squares = _squares(problem.points[chosen], problem.epsilon)
            face = PatchCollection(squares, facecolor=colour, alpha=alpha)
            edge = PatchCollection(squares, facecolor="none", edgecolor=colour, lw=0.8, alpha=0.6)
            axes.add_collection(face)
            axes.add_collection(edge)


def _squares(points: np.ndarray, epsilon: float) -> list[Rectangle]:
    return [Rectangle((a - epsilon, b - epsilon), 2 * epsilon, 2 * epsilon) for a, b in points]


def _mesh(extent: Sequence[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x1, x2 = np.meshgrid(
        np.linspace(extent[0], extent[1], MESH), np.linspace(extent[2], extent[3], MESH)
    )
    return x1, x2, np.stack([x1, x2], axis=-1)


def _draw_boundary(
    axes: Axes,
    f: Function,
    colour: str,
    label: str,
    style: str = "-",
    *,
    width: float = 2,
    extent: Sequence[float] = (0, 1, 0, 1),
) -> None:
    """Draws the zeros of f; an empty `label` stays out of the legend."""
    x1, x2, mesh = _mesh(extent)
    axes.contour(x1, x2, f(mesh), [0.0], colors=[colour], linestyles=style, linewidths=width)
    if label:
        axes.plot([], [], color=colour, ls=style, lw=width, label=label)


def _shade_difference(axes: Axes, f: Function, oracle: Function, extent: Sequence[float]) -> None:
    """Shades the region where f and the oracle give different classes."""
    x1, x2, mesh = _mesh(extent)
    product = np.where((f(mesh) >= 0) != (oracle(mesh) >= 0), 1.0, 0.0)
    axes.contourf(x1, x2, product, [0.5, 1.5], colors=["black"], alpha=0.12)


def _finish(axes: Axes, title: str, *, extent: Sequence[float] = (0, 1, 0, 1)) -> None:
    axes.set(xlabel="x1", ylabel="x2", title=title, xlim=extent[:2], ylim=extent[2:])
