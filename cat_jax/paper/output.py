"""Prints a table, and writes it to a folder as Markdown, LaTeX, CSV, HTML, PNG and PDF.

What draws is imported where it draws, because matplotlib takes a second to import.
"""

import csv
import io
import pathlib
from typing import TYPE_CHECKING

from cat_jax.paper import sheet, texts
from cat_jax.paper.catalogue import TABLES
from cat_jax.paper.query import Query
from cat_jax.report import grids
from cat_jax.report.grids import Grid
from cat_jax.storage import files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

text = grids.markdown


def show(name: str, query: Query, out: pathlib.Path | None) -> None:
    """Prints a table, and writes its files to `out` unless it is None."""
    grid = build(name, query)
    print(text(grid) + "\n")
    if out is None:
        return
    figure = draw(name, query)
    files.write_text(out / f"{name}.md", as_markdown(name, grid, has_figure=figure is not None))
    files.write_text(out / f"{name}.tex", grids.latex(grid))
    files.write_text(out / f"{name}.csv", as_csv(name, grid, query))
    if figure:
        for kind in ("png", "pdf"):
            with files.replacing(out / f"{name}.{kind}") as temporary:
                figure.savefig(temporary, format=kind, dpi=150)
    files.write_text(out / f"{name}.html", as_html(name, grid, figure, query))


def build(name: str, query: Query) -> Grid:
    """Returns the table as text."""
    return texts.losses() if name == "losses" else sheet.grid(TABLES[name], query)


def as_markdown(name: str, grid: Grid, *, has_figure: bool) -> str:
    """Returns a page with the title, the caption, the table, its notes and its figure."""
    title, _, caption = grid.caption.partition(". ")
    parts = [f"# {title}", caption, grids.markdown_table(grid), *grid.notes]
    parts += [f"![{title}]({name}.png)"] if has_figure else []
    return "\n\n".join(filter(None, parts)) + "\n"


def as_csv(name: str, grid: Grid, query: Query) -> str:
    """Returns one number a line, or the text of a table without numbers."""
    if name in TABLES:
        return sheet.as_csv(TABLES[name], query)
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([grid.head, *grid.body])
    return stream.getvalue()


def as_html(name: str, grid: Grid, figure: "Figure | None", query: Query) -> str:
    """Returns a page that needs no other file."""
    from cat_jax.paper import table_page
    from cat_jax.report import plots

    if name in TABLES:
        png = plots.png(figure) if figure else None
        return table_page.table_page(TABLES[name], grid, png, query)
    return table_page.text_page(grid)


def draw(name: str, query: Query) -> "Figure | None":
    """Returns the table's figure, or None for texts."""
    from cat_jax.paper import bars, figures, pictures

    if name == "adaptation":
        return pictures.adaptation()
    if name == "mask_visualisation":
        return pictures.masks(TABLES[name], query)
    if name == "trades_tradeoff":
        return bars.tradeoff(TABLES[name], query)
    if name in TABLES:
        draw_numbers = figures.draw if TABLES[name].panels else bars.draw
        return draw_numbers(TABLES[name], query)
    return None
