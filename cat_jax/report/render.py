"""A grid of text as Markdown and as LaTeX."""

import re
from collections.abc import Sequence
from typing import NamedTuple

NAMES = {
    "fgsm": "FGSM",
    "cw_inf": "C&W-inf",
    "square": "Square",
    "mask_digit": "mean M, digit",
    "mask_background": "mean M, background",
}
ESCAPED = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "%_&#${}"},
    "±": r"$\pm$",
    "<": r"$<$",
    ">": r"$>$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}

LONG = 45  # Characters; a cell with more is set as a paragraph.


class Grid(NamedTuple):
    """A table that is all text.

    Attributes:
      name: of the table, for the label.
      caption: one paragraph.
      head: one cell a column.
      body: rows of cells; a cell between dollars is mathematics, in both forms.
      notes: paragraphs below.
    """

    name: str
    caption: str
    head: Sequence[str]
    body: Sequence[Sequence[str]]
    notes: Sequence[str]


def heading(metric: str) -> str:
    """ "PGD-20 unclipped" for "pgd20_unclipped"; sums term by term."""
    if "+" in metric:
        return " + ".join(heading(part) for part in metric.split("+"))
    if found := re.fullmatch(r"pgd(\d+)(_unclipped)?", metric):
        return f"PGD-{found[1]}" + (" unclipped" if found[2] else "")
    return NAMES.get(metric, metric)


def markdown(grid: Grid) -> str:
    """The caption, the table, and a paragraph for each note."""
    table = "\n".join(markdown_lines([grid.head, *grid.body]))
    return "\n\n".join([f"**{grid.caption}**", table, *grid.notes])


def markdown_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table, its columns aligned; the first row is its head."""
    rows = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    return [lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]]


def latex(grid: Grid) -> str:
    """A table environment that needs booktabs."""
    columns = "".join(_columns(grid))
    lines = [
        r"\begin{table}",
        r"\centering",
        r"\small",
        rf"\caption{{{escape(grid.caption)}}}",
        rf"\label{{tab:{grid.name.replace('_', '-')}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _latex_row(grid.head),
        r"\midrule",
        *map(_latex_row, grid.body),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip\footnotesize {escape(note)}" for note in grid.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Text as LaTeX prints it; what is between dollars stays mathematics."""
    return text if _is_maths(text) else "".join(ESCAPED.get(sign, sign) for sign in text)


def _is_maths(text: str) -> bool:
    return len(text) > 2 and text.startswith("$") and text.endswith("$")


def _columns(grid: Grid) -> list[str]:
    """Numbers to the right, long texts in paragraphs that share the line, others to the left."""
    cells = list(zip(grid.head, *grid.body, strict=True))
    long = [i for i, column in enumerate(cells) if max(map(len, column)) > LONG]
    made = []
    for i, (_, *column) in enumerate(cells):
        if i in long:
            made.append(rf"p{{{0.7 / len(long):.2f}\linewidth}}")
        else:
            made.append("r" if i and all(map(_is_number, column)) else "l")
    return made


def _is_number(cell: str) -> bool:
    return re.match(r"-|\d|no run", cell) is not None


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(escape, cells)) + r" \\"
