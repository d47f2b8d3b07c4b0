"""Draws the paper's figures of numbers over rows or epochs: ours beside the published ones."""

import math
import textwrap
from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cat_jax.paper import cells, measured, published_numbers
from cat_jax.paper.cells import Cell
from cat_jax.paper.published_numbers import Published
from cat_jax.paper.query import Query
from cat_jax.paper.rows import Panel, Row, Table
from cat_jax.report.grids import heading
from cat_jax.report.plots import COLOURS

matplotlib.use("Agg")
EMPTY = "no run, and no published value"
LEGEND_WIDTH = 90  # Characters of a legend that fit below a panel.


def draw(table: Table, query: Query) -> Figure:
    """Draws one set of axes for each panel of the table."""
    count, lines = len(table.panels), []
    figure = Figure(figsize=(5.2 * count, 4.2), layout="constrained")
    rows = {row.label: row for row in table.rows}
    for axes, panel in zip(figure.subplots(1, count, squeeze=False)[0], table.panels, strict=True):
        axes.set_title(panel.title)
        axes.set_xlabel(panel.x_label)
        axes.set_ylabel(_y_name(panel))
        if panel.x == "epoch":
            _draw_curves(axes, panel, rows, query)
        else:
            _draw_rows(axes, panel, rows, table, query)
        axes.grid(alpha=0.3)
        if names := axes.get_legend_handles_labels()[1]:
            columns = max(1, min(3, LEGEND_WIDTH // (max(map(len, names)) + 6)))
            below = (0.5, -0.18)
            axes.legend(fontsize=7, ncols=columns, loc="upper center", bbox_to_anchor=below)
            lines.append(math.ceil(len(names) / columns))
        else:
            axes.text(0.5, 0.5, EMPTY, ha="center", transform=axes.transAxes)
    figure.set_figheight(3.8 + 0.16 * max(lines, default=0))
    put_title(figure, table, query)
    return figure


def put_title(figure: Figure, table: Table, query: Query, *notes: str) -> None:
    """Writes the table's title, the scale and notes on the runs above the figure."""
    scale = "" if query.scale == 1 else f"SCALED: {query.scale:g} of the training"
    width = int(13 * figure.get_figwidth())  # Because 13 characters of 9 points fit an inch.
    lines = [textwrap.fill(text, width) for text in (table.title, scale, *notes) if text]
    figure.suptitle("\n".join(lines), fontsize=9)


def _y_name(panel: Panel) -> str:
    if panel.minus:
        return "accuracy in percent, less a constant"
    sums = any("+" in metric for metric in panel.y)
    name = " and ".join(heading(metric) for metric in panel.y)
    return f"{'sum' if sums else 'accuracy'} in percent: {name}"


def _draw_rows(
    axes: Axes, panel: Panel, rows: Mapping[str, Row], table: Table, query: Query
) -> None:
    """Draws metrics over a field of the rows: ours solid with error bars, published dashed."""
    axes.set_xscale(panel.x_scale)
    if panel.x_scale == "log" or panel.x_unit != 1:
        ticks = sorted({place(row, panel) for row in rows.values()})
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    many, has = len(panel.lines) > 1, {"ours": False, "published": False}
    for i, (name, labels) in enumerate(panel.lines):
        line = [rows[label] for label in labels]
        for j, metric in enumerate(panel.y):
            colour, minus = COLOURS[i if many else j], panel.minus.get(metric, 0.0)
            title = name if many else heading(metric) + (f" - {minus:g}" if minus else "")
            own = _points([(row, ours(row, table, query)) for row in line], metric, panel)
            numbers = [(row, published_numbers.of_row(row, table)) for row in line]
            published = _points(numbers, metric, panel)
            if own:
                at, mean, bar = zip(*own, strict=True)
                axes.errorbar(at, mean, bar, color=colour, marker="o", capsize=2)
            if published:
                at, mean, _ = zip(*published, strict=True)
                axes.plot(at, mean, "--x", color=colour, alpha=0.7)
            if own or published:
                axes.plot([], [], color=colour, label=title)
            has["ours"] |= bool(own)
            has["published"] |= bool(published)
    for kind, style in (("ours", "-o"), ("published", "--x")):
        if has[kind]:
            axes.plot([], [], style, color="grey", label=kind)


def place(row: Row, panel: Panel) -> float:
    """Returns the place of a row on the x axis."""
    return float(row.config()[panel.x]) / panel.x_unit


def ours(row: Row, table: Table, query: Query) -> dict[str, Cell]:
    """Returns the row's numbers by column, from the runs that belong to it and have ended."""
    ended = [match for match in query.exact(row) if not match.progress]
    numbers = cells.lines(row, table, ended)[0].cells
    return {column: cell for column, cell in numbers.items() if isinstance(cell, Cell)}


def spread(number: Cell | Published) -> float:
    """Returns half of an error bar: the standard deviation, or half the interval of one seed."""
    if number.std is not None:
        return number.std
    return (number.half or 0.0) if isinstance(number, Cell) else 0.0


def _points(
    numbers: Sequence[tuple[Row, Mapping[str, Cell] | Mapping[str, Published]]],
    metric: str,
    panel: Panel,
) -> list[tuple[float, float, float]]:
    """Returns (place, mean, half of the error bar) of each row that has the metric."""
    minus = panel.minus.get(metric, 0.0)
    of_metric = [(row, of_row[metric]) for row, of_row in numbers if metric in of_row]
    return [(place(row, panel), n.mean - minus, spread(n)) for row, n in of_metric]


def _draw_curves(axes: Axes, panel: Panel, rows: Mapping[str, Row], query: Query) -> None:
    """Draws a metric over epochs: a line for each run, dotted if the run differs from its row."""
    (metric,) = panel.y
    for i, (name, labels) in enumerate(panel.lines):
        named: set[str] = set()
        for row in (rows[label] for label in labels):
            for match in query.of(row):
                points = [(p["epoch"], 100 * p[metric]) for p in measured.curve(match.run)]
                label = ", ".join((name, *match.differences))
                if points:
                    legend = None if label in named else label
                    dashes = "-" if label == name else ":"
                    axes.plot(*zip(*points, strict=True), dashes, color=f"C{i}", label=legend, lw=1)
                    named.add(label)
