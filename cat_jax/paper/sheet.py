"""One of the paper's tables filled from a folder of runs: text, numbers for a CSV, and status."""

import collections
import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from cat_jax.paper import cells, commands, measured, runs
from cat_jax.paper.cells import Cell, Line
from cat_jax.paper.measured import Run
from cat_jax.paper.rows import Row, Table
from cat_jax.report.grids import Grid, heading
from cat_jax.report.published_numbers import Published

DASH = "-"
NO_RUN = "no run"
FIELDS = (
    *("table", "row", "whose", "metric", "mean", "std", "half_interval", "images", "seeds"),
    *("published", "published_std", "mark"),
)


class Asked(NamedTuple):
    """What the command line asks for.

    Attributes:
      found: the runs of the folder.
      folder: where they are, as it was written.
      seeds: those to look at; None: those of each row, and all that are found.
      scale: of the training's length; below 1 only runs of that length are looked at.
    """

    found: Sequence[Run]
    folder: str = "runs"
    seeds: tuple[int, ...] | None = None
    scale: float = 1.0

    def of(self, row: Row) -> list[Run]:
        """The runs of a row; at scale 1 of any length."""
        length = None if self.scale == 1 else commands.length(row, self.scale)
        return runs.chosen(self.found, row, self.seeds, length)

    def exact(self, row: Row, table: Table) -> list[Run]:
        """The runs that are as the row has them, at the scale; their seeds may be others."""
        found = runs.chosen(self.found, row, self.seeds, commands.length(row, self.scale))
        return [run for run in found if not _other(run, row, table)]

    def launched(self, row: Row, table: Table) -> Iterator[tuple[int, Run | None]]:
        """Each seed that the row asks for, and its run as the row has it, if there is one."""
        exact = self.exact(row, table)
        for seed in self.seeds if self.seeds is not None else row.seeds:
            of_seed = [run for run in exact if run.seed == seed]
            yield seed, max(of_seed, key=lambda run: run.step, default=None)


def _other(run: Run, row: Row, table: Table) -> list[str]:
    """In what it is made otherwise than the row's command makes it, its length and test aside."""
    aside = ("test images", "epochs", "steps")
    return [d for d in runs.differences(run, row, table) if not d.endswith(aside)]


def fill(table: Table, asked: Asked) -> list[Line]:
    """Every printed line, row by row."""
    return [line for row in table.rows for line in cells.lines(row, table, asked.of(row))]


def grid(table: Table, asked: Asked) -> Grid:
    """The table as text."""
    lines = fill(table, asked)
    head = ["trained", "", *(heading(column) for column in table.columns), "N", "seeds"]
    body = [_texts(line, table) for line in _marked(lines)]
    notes = [cells.LEGEND, table.note, *_footnotes(table), _progress(table, asked)]
    return Grid(table.name, _caption(table, asked, lines), head, body, [n for n in notes if n])


def _marked(lines: Sequence[Line]) -> Iterator[tuple[Line, dict[str, Published]]]:
    """Each line with what was published of its row."""
    published = {line.row.label: line.cells for line in lines if line.whose == "published"}
    for line in lines:
        numbers = published[line.row.label]
        yield line, {k: n for k, n in numbers.items() if isinstance(n, Published)}


def _texts(marked: tuple[Line, dict[str, Published]], table: Table) -> list[str]:
    line, published = marked
    ours = [cell for cell in line.cells.values() if isinstance(cell, Cell)]
    most = max((cell.seeds for cell in ours), default=0)
    texts = [_text(line, column, published, most) for column in table.columns]
    sizes = " / ".join(map(str, sorted({cell.size for cell in ours}))) or DASH
    seeds = f"{most} of {len(line.found)}" if most < len(line.found) else str(most)
    return [line.row.label, line.whose, *texts, sizes, seeds if line.found else DASH]


def _text(line: Line, column: str, published: dict[str, Published], most: int) -> str:
    cell = line.cells.get(column)
    if cell is None:
        return DASH if line.found or line.whose == "published" else NO_RUN
    if isinstance(cell, Published):
        return f"{cell.mean:.1f}" + (f" ± {cell.std:g}" if cell.std is not None else "")
    few = f"[{cell.seeds}]" if cell.seeds < most else ""
    return " ".join(filter(None, (cell.text(), few, cells.mark(cell, published.get(column)))))


def _caption(table: Table, asked: Asked, lines: Sequence[Line]) -> str:
    seeds = sorted({run.seed for line in lines for run in line.found})
    said = [
        f"{table.title}. Percent. Conventions released",
        " or ".join(dict.fromkeys(map(_selected, table.rows))),
        f"seeds {', '.join(map(str, seeds))}" if seeds else "no runs",
    ]
    if asked.scale != 1:
        said.append(
            f"SCALED: {asked.scale:g} of the paper's training and of the test images, so not "
            "comparable with the published numbers"
        )
    return "; ".join(said) + ". A line of ours says where it departs from this."


def _selected(row: Row) -> str:
    expected = row.expected()
    if expected["selection"] == "test":
        return "checkpoint chosen on the test split"
    if not expected["num_validation"]:
        return "last checkpoint, nothing held out"
    return f"checkpoint chosen on {expected['num_validation']} held-out training images"


def _footnotes(table: Table) -> list[str]:
    return [f"{row.label}: {row.note}" for row in table.rows if row.note]


Status = tuple[Row, int, str]


def statuses(table: Table, asked: Asked) -> list[Status]:
    """For each row and seed that are to be launched: done, how far, or missing."""
    found = []
    for row in table.rows:
        for seed, run in asked.launched(row, table):
            text = runs.status(run, row, table)
            parts = runs.differences(run, row, table) if run and text == "done" else ()
            if asked.scale == 1 and parts:
                text = f"trained, evaluated in part: {', '.join(parts)}"
            found.append((row, seed, text))
    return found


def status_grid(tables: Iterable[Table], asked: Asked) -> Grid:
    """The statuses as text."""
    body = [
        [table.name, row.label, str(seed), text]
        for table in tables
        for row, seed, text in statuses(table, asked)
    ]
    scale = "" if asked.scale == 1 else f" at scale {asked.scale:g}"
    caption = f"Runs in {asked.folder}{scale}"
    return Grid("status", caption, ["table", "trained", "seed", "status"], body, [])


def _progress(table: Table, asked: Asked) -> str:
    """How many runs are done, and which are not though they have begun."""
    every = statuses(table, asked)
    done = sum(text == "done" for _, _, text in every)
    begun = [
        f"{row.label} seed {seed}: {text}"
        for row, seed, text in every
        if text not in ("done", "missing")
    ]
    said = f"Runs done: {done} of {len(every)} in {asked.folder}."
    return " ".join([said, *(f"{text}." for text in begun + _without_numbers(table, asked))])


def _without_numbers(table: Table, asked: Asked) -> list[str]:
    """How many runs are not as their row has them, and have nothing to print yet."""
    kinds = collections.Counter(
        ", ".join(others)
        for row in table.rows
        for run in asked.of(row)
        if (others := runs.differences(run, row, table)) and not measured.numbers(run, table)
    )
    return [f"Without numbers here: {count} with {kind}" for kind, count in kinds.items()]


def launched(tables: Iterable[Table], asked: Asked, more: Sequence[str], todo: bool) -> list[str]:
    """The commands of the tables, each run once; with `todo` only of what is not done."""
    made: dict[str, bool] = {}
    for table in tables:
        for row, seed, text in statuses(table, asked):
            command = commands.command(row, seed, asked.folder, asked.scale, more)
            made[command] = made.get(command, False) or text != "done"
    return [command for command, unfinished in made.items() if unfinished or not todo]


def as_csv(table: Table, asked: Asked) -> str:
    """One line for each number of ours, beside the published one; and for what is missing."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(FIELDS)
    for line, published in _marked(fill(table, asked)):
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
