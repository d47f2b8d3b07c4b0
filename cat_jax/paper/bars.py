"""Figures of the accuracy tables: ours as bars, the published numbers as marks on them."""

import math

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cat_jax.paper import figures, published_numbers
from cat_jax.paper.cells import Cell
from cat_jax.paper.published_numbers import Published
from cat_jax.paper.query import Query
from cat_jax.paper.rows import Table
from cat_jax.report.grids import heading
from cat_jax.report.plots import COLOURS

matplotlib.use("Agg")
GROUP = 0.84  # Of the distance between two rows; the rest is a gap.


def draw(table: Table, query: Query) -> Figure:
    """A group of bars for each row, a colour for each column, a black mark where it was published.

    A mark without a bar of ours has a stem in the colour that the bar would have. Error bars are
    the standard deviation over seeds, or half the interval of one. The axis begins five points or
    more below the lowest number.
    """
    count, places = len(table.columns), np.arange(len(table.rows))
    width, wide = GROUP / count, 2 + len(places) * (0.3 + 0.1 * count)
    figure = Figure(figsize=(max(7.0, wide), 4.6), layout="constrained")
    axes = figure.subplots()
    measured = [figures.ours(row, table, query) for row in table.rows]
    published = [published_numbers.of_row(row, table) for row in table.rows]
    shown = [cell.mean for numbers in measured for cell in numbers.values()]
    shown += [number.mean for numbers in published for number in numbers.values()]
    lowest = max(0, 10 * math.floor((min(shown, default=0) - 5) / 10))
    for j, column in enumerate(table.columns):
        at = places + (j - (count - 1) / 2) * width
        mean = np.array([_mean(numbers.get(column)) for numbers in measured])
        bar = [figures.spread(n[column]) if column in n else np.nan for n in measured]
        label = f"{heading(column)}, ours"
        axes.bar(at, mean, width * 0.92, yerr=bar, capsize=2, color=COLOURS[j], label=label)
        marks = np.array([_mean(numbers.get(column)) for numbers in published])
        label = "" if j else "published"
        axes.hlines(marks, at - width / 2, at + width / 2, color="black", lw=1.8, label=label)
        alone = np.isnan(mean)
        axes.vlines(at[alone], lowest, marks[alone], color=COLOURS[j], lw=1)
    axes.set_xticks(places, [row.label for row in table.rows])
    axes.tick_params("x", rotation=30)
    for text in axes.get_xticklabels():
        text.set(ha="right", rotation_mode="anchor", fontsize=8)
    start = f", from {lowest}" if lowest else ""
    limits = lowest, min(101, max(shown, default=98) + 3)
    axes.set(xlabel="trained", ylabel=f"accuracy in percent{start}", ylim=limits)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=min(4, count + 1), fontsize=8)
    figures.put_title(figure, table, query)
    return figure


def _mean(number: Cell | Published | None) -> float:
    return np.nan if number is None else number.mean


def tradeoff(table: Table, query: Query) -> Figure:
    """Natural against robust accuracy: ours with error bars, the published ones hollow.

    Along a dotted line the sum of both is that of a published point.
    """
    figure = Figure(figsize=(6.4, 5.0), layout="constrained")
    axes = figure.subplots()
    x, y = table.columns[:2]
    for row, colour in zip(table.rows, COLOURS, strict=False):
        own, published = figures.ours(row, table, query), published_numbers.of_row(row, table)
        if own.keys() >= {x, y}:
            at, bars = (own[x].mean, own[y].mean), (figures.spread(own[y]), figures.spread(own[x]))
            axes.errorbar(*at, *bars, fmt="o", color=colour, label=f"{row.label}, ours")
        if published.keys() >= {x, y}:
            _published(axes, published[x], published[y], colour, f"{row.label}, published")
    axes.set(
        xlabel=f"{heading(x)} accuracy in percent",
        ylabel=f"accuracy under {heading(y)} in percent",
    )
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.25)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    figures.put_title(figure, table, query)
    return figure


def _published(axes: Axes, x: Published, y: Published, colour: str, label: str) -> None:
    at, bars = (x.mean, y.mean), (y.std or 0.0, x.std or 0.0)
    axes.errorbar(*at, *bars, fmt="s", color=colour, mfc="white", ms=8, label=label)
    axes.axline(at, slope=-1, color=colour, ls=":", lw=1)
    text = f"sum {x.mean + y.mean:.1f}"
    axes.annotate(text, at, xytext=(8, 8), textcoords="offset points", fontsize=8)
