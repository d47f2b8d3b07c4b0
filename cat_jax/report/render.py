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
    """A table that shrinks to the line. Needs the packages booktabs and graphicx."""
    caption = rf"\caption{{{escape(grid.caption)}}}"
    label = rf"\label{{tab:{grid.name.replace('_', '-')}}}"
    notes = [
        rf"\par\smallskip{{\raggedright\scriptsize {escape(note)}\par}}" for note in grid.notes
    ]
    # \width is that of the whole.
    fitting = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}"
    lines = [
        *(r"\begin{table}", r"\centering", r"\small", caption, label, r"\smallskip"),
        rf"{fitting}{{\begin{{tabular}}{{{''.join(_columns(grid))}}}",
        *(r"\toprule", _latex_row(grid.head), r"\midrule"),
        *map(_latex_row, grid.body),
        *(r"\bottomrule", r"\end{tabular}}", *notes, r"\end{table}"),
    ]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Text as LaTeX prints it; what is between dollars stays mathematics."""
    return text if is_maths(text) else "".join(ESCAPED.get(sign, sign) for sign in text)


def is_maths(text: str) -> bool:
    """Whether a cell is between dollars."""
    return len(text) > 2 and text.startswith("$") and text.endswith("$")


def _columns(grid: Grid) -> list[str]:
    """Numbers to the right, long texts in paragraphs that share the line, others to the left."""
    found = kinds(grid)
    count = found.count("long")
    paragraph = rf"p{{{min(0.3, 0.62 / max(1, count)):.3f}\linewidth}}"
    if count > 1:
        paragraph = rf">{{\raggedright\arraybackslash}}{paragraph}"
    return [{"long": paragraph, "number": "r", "": "l"}[kind] for kind in found]


def kinds(grid: Grid) -> list[str]:
    """Of each column: "long" with a text above LONG, "number" if all are, or ""."""
    made = []
    for i, (head, *column) in enumerate(zip(grid.head, *grid.body, strict=True)):
        numbers = i and all(map(_is_number, column))
        long = any(len(text) > LONG and not is_maths(text) for text in (head, *column))
        made.append("long" if long else "number" if numbers else "")
    return made


def _is_number(cell: str) -> bool:
    return re.match(r"-|\d|no run", cell) is not None


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(escape, cells)) + r" \\"
