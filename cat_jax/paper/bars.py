"""Figures of the accuracy tables: our numbers as bars, the published ones as marks on them."""

import math

import matplotlib
import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cat_jax.paper import figures, published_numbers
from cat_jax.paper.cells import Cell
from cat_jax.paper.published_numbers import Published
from cat_jax.paper.query import Query
from cat_jax.paper.rows import Table
from cat_jax.report.grids import heading
from cat_jax.report.plots import COLOURS

matplotlib.use("Agg")
GROUP_WIDTH = 0.84  # Share of the distance between two rows; the rest is a gap.
OUTLINE = [patheffects.withStroke(linewidth=4.4, foreground="black")]  # Shows a mark on its bar.


def draw(table: Table, query: Query) -> Figure:
    """Draws a group of bars for each row of the table, and a colour for each column.

    A dash in the colour of its column, outlined in black, is the published number; without a bar of
    ours it has a stem. Error bars are the standard deviation over seeds, or half of the interval of
    one seed. The axis begins at least five points below the lowest number.
    """
    count, places = len(table.columns), np.arange(len(table.rows))
    width, wide = GROUP_WIDTH / count, 2 + len(places) * (0.3 + 0.1 * count)
    figure = Figure(figsize=(max(7.0, wide), 4.6), layout="constrained")
    axes = figure.subplots()
    measured = [figures.ours(row, table, query) for row in table.rows]
    published = [published_numbers.of_row(row, table) for row in table.rows]
    values = [cell.mean for numbers in measured for cell in numbers.values()]
    values += [number.mean for numbers in published for number in numbers.values()]
    lowest = max(0, 10 * math.floor((min(values, default=0) - 5) / 10))
    for j, column in enumerate(table.columns):
        at = places + (j - (count - 1) / 2) * width
        mean = np.array([_mean(numbers.get(column)) for numbers in measured])
        bar = [figures.spread(n[column]) if column in n else np.nan for n in measured]
        label = heading(column)
        axes.bar(at, mean, width * 0.92, yerr=bar, capsize=2, color=COLOURS[j], label=label)
        marks = np.array([_mean(numbers.get(column)) for numbers in published])
        left, right = at - 0.42 * width, at + 0.42 * width
        dashes = axes.hlines(marks, left, right, color=COLOURS[j], lw=2.4, zorder=4)
        dashes.set(path_effects=OUTLINE, gid=f"published {column}")
        alone = np.isnan(mean)
        axes.vlines(at[alone], lowest, marks[alone], color=COLOURS[j], lw=1)
    axes.set_xticks(places, [row.label for row in table.rows])
    axes.tick_params("x", rotation=30)
    for text in axes.get_xticklabels():
        text.set(ha="right", rotation_mode="anchor", fontsize=8)
    start = f", from {lowest}" if lowest else ""
    limits = lowest, min(101, max(values, default=98) + 3)
    axes.set(xlabel="trained with", ylabel=f"accuracy in percent{start}", ylim=limits)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    dash = Line2D([], [], color="white", lw=2.4, path_effects=OUTLINE, label="published")
    handles = [*axes.get_legend_handles_labels()[0], dash]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)
    figures.put_title(figure, table, query)
    return figure


def _mean(number: Cell | Published | None) -> float:
    return np.nan if number is None else number.mean


def tradeoff(table: Table, query: Query) -> Figure:
    """Draws natural against robust accuracy: our points filled, the published ones hollow.

    A dotted line joins all points with the same sum as a published one.
    """
    figure = Figure(figsize=(6.4, 5.0), layout="constrained")
    axes = figure.subplots()
    x, y = table.columns[:2]
    for row, colour in zip(table.rows, COLOURS, strict=False):
        own, published = figures.ours(row, table, query), published_numbers.of_row(row, table)
        if own.keys() >= {x, y}:
            at, bars = (own[x].mean, own[y].mean), (figures.spread(own[y]), figures.spread(own[x]))
            axes.errorbar(*at, *bars, fmt="o", color=colour, label=row.label)
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
