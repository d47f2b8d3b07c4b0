"""Tables of text, as Markdown and as LaTeX."""

import functools
import itertools
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tabulate import tabulate

from cat_jax.report.render import is_maths, render
from cat_jax.runtime import terminal

NAMES = {
    "fgsm": "FGSM",
    "cw_inf": "C&W-inf",
    "square": "Square",
    "mask_digit": "mean M, digit",
    "mask_background": "mean M, background",
}
MAX_LINE = 45  # Characters; LaTeX sets a longer cell as a paragraph.


class Grid(NamedTuple):
    """A table of text.

    Attributes:
      name: label in LaTeX.
      caption: one paragraph.
      head: one cell for each column.
      body: rows of cells; a cell between dollars is TeX mathematics.
      notes: paragraphs below the table.
    """

    name: str
    caption: str
    head: Sequence[str]
    body: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def kinds(self) -> list[str]:
        """Each column as "long" (has a text above MAX_LINE), "number" (has only numbers), or ""."""
        columns = zip(*self.body, strict=True) if self.body else ((),) * len(self.head)
        return [_kind(column) if i else "" for i, column in enumerate(columns)]

    def groups(self) -> Iterator[tuple[str, list[list[str]]]]:
        """(first cell, the other cells of each row) for adjacent rows with the same first cell."""
        for first, rows in itertools.groupby(self.body, key=lambda row: row[0]):
            yield first, [list(others) for _, *others in rows]


def heading(metric: str) -> str:
    """ "PGD-20 unclipped" for "pgd20_unclipped"; sums term by term."""
    if "+" in metric:
        return " + ".join(heading(part) for part in metric.split("+"))
    if match := re.fullmatch(r"pgd(\d+)(_unclipped)?", metric):
        return f"PGD-{match[1]}" + (" unclipped" if match[2] else "")
    return NAMES.get(metric, metric)


def markdown(grid: Grid) -> str:
    """The caption, the table, and one paragraph for each note."""
    return "\n\n".join([f"**{grid.caption}**", markdown_table(grid), *grid.notes])


def captioned(grids: Sequence[Grid]) -> str:
    """Each table below its caption, which is as wide as the terminal; "" without tables."""
    wrap = functools.partial(textwrap.fill, width=terminal.width(), break_on_hyphens=False)
    return "\n\n".join(f"{wrap(grid.caption)}\n\n{markdown_table(grid)}" for grid in grids)


def markdown_table(grid: Grid) -> str:
    """The table without caption and notes, with numbers right-aligned."""
    head, *body = ([cell.replace("|", r"\|") for cell in row] for row in (grid.head, *grid.body))
    sides = ["right" if kind == "number" else "left" for kind in grid.kinds()]
    return tabulate(body, head, tablefmt="pipe", colalign=sides, disable_numparse=True)


def latex(grid: Grid) -> str:
    """A table that shrinks to the line width; requires the packages booktabs and graphicx."""
    paragraph = rf"p{{{min(0.3, 0.62 / max(1, grid.kinds().count('long'))):.3f}\linewidth}}"
    columns = {"long": paragraph, "number": "r", "": "l"}
    template = "report/templates/table.tex"
    return render(template, grid=grid, columns="".join(columns[kind] for kind in grid.kinds()))


def _kind(column: Sequence[str]) -> str:
    if any(len(text) > MAX_LINE and not is_maths(text) for text in column):
        return "long"
    return "number" if all(re.match(r"-|\d|no run", text) for text in column) else ""
