"""Fills one of the paper's tables from runs, as text and as CSV."""

import csv
import io
from collections.abc import Iterator, Sequence

from cat_jax.paper import cells, progress
from cat_jax.paper.cells import Cell, Line
from cat_jax.paper.published_numbers import Published
from cat_jax.paper.query import Query
from cat_jax.paper.rows import Row, Table
from cat_jax.report.grids import Grid, heading

DASH = "-"
NO_RUN = "no run"
FIELDS = (
    *("table", "row", "whose", "metric", "mean", "std", "half_interval", "images", "seeds"),
    *("published", "published_std", "mark"),
)


def fill(table: Table, query: Query) -> list[Line]:
    """Returns every printed line, row by row."""
    return [line for row in table.rows for line in cells.lines(row, table, query.of(row))]


def grid(table: Table, query: Query) -> Grid:
    """Returns the table as text; its last note is about the runs."""
    lines = fill(table, query)
    head = ["trained", "", *(heading(column) for column in table.columns), "N", "seeds"]
    body = [_texts(line, published, table) for line, published in _beside_published(lines)]
    notes = [cells.LEGEND, table.note, *_footnotes(table), progress.summary(table, query)]
    return Grid(table.name, _caption(table, query, lines), head, body, [n for n in notes if n])


def _beside_published(lines: Sequence[Line]) -> Iterator[tuple[Line, dict[str, Published]]]:
    """Yields each line with the published numbers of its row."""
    published = {line.row.label: line.cells for line in lines if line.whose == "published"}
    for line in lines:
        numbers = published[line.row.label]
        yield line, {k: n for k, n in numbers.items() if isinstance(n, Published)}


def _texts(line: Line, published: dict[str, Published], table: Table) -> list[str]:
    ours = [cell for cell in line.cells.values() if isinstance(cell, Cell)]
    most = max((cell.seeds for cell in ours), default=0)
    texts = [_text(line, column, published, most) for column in table.columns]
    sizes = " / ".join(map(str, sorted({cell.size for cell in ours}))) or DASH
    seeds = f"{most} of {len(line.runs)}" if most < len(line.runs) else str(most)
    return [line.row.label, line.whose, *texts, sizes, seeds if line.runs else DASH]


def _text(line: Line, column: str, published: dict[str, Published], most: int) -> str:
    cell = line.cells.get(column)
    if cell is None:
        return DASH if line.runs or line.whose == "published" else NO_RUN
    if isinstance(cell, Published):
        return cell.text()
    few = f"[{cell.seeds}]" if cell.seeds < most else ""
    return " ".join(filter(None, (cell.text(), few, cells.mark(cell, published.get(column)))))


def _caption(table: Table, query: Query, lines: Sequence[Line]) -> str:
    seeds = sorted({run.seed for line in lines for run in line.runs})
    parts = [
        f"{table.title}. Numbers in percent; released conventions",
        " or ".join(dict.fromkeys(map(_selection, table.rows))),
        f"seeds {', '.join(map(str, seeds))}" if seeds else "no runs",
    ]
    if query.scale != 1:
        parts.append(
            f"SCALED: {query.scale:g} of the paper's training and of the test images, which is not "
            "comparable with the published numbers"
        )
    return "; ".join(parts) + ". Each line of ours names what differs from this."


def _selection(row: Row) -> str:
    config = row.config()
    if config["selection"] == "test":
        return "checkpoint chosen on the test split"
    if not config["num_validation"]:
        return "last checkpoint, nothing held out"
    return f"checkpoint chosen on {config['num_validation']} held-out training images"


def _footnotes(table: Table) -> list[str]:
    return [f"{row.label}: {row.note}" for row in table.rows if row.note]


def as_csv(table: Table, query: Query) -> str:
    """Returns one line for each number of ours, or its absence, beside the published number."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(FIELDS)
    for line, published in _beside_published(fill(table, query)):
        for column in table.columns if line.whose != "published" else ():
            cell, reference = line.cells.get(column), published.get(column)
            ours: list[object] = [None] * 6
            if isinstance(cell, Cell):
                ours = [cell.mean, cell.std, cell.half, cell.size, cell.seeds]
                ours = [f"{x:.4g}" if isinstance(x, float) else x for x in ours]
                ours.append(cells.mark(cell, reference))
            theirs = (reference.mean, reference.std) if reference else (None, None)
            head = (table.name, line.row.label, line.whose, column)
            writer.writerow([*head, *ours[:5], *theirs, ours[5]])
    return stream.getvalue()
