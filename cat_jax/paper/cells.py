"""Averages a row's numbers over seeds, in percent, and compares them with the published ones."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

from cat_jax.paper import measured, published_numbers
from cat_jax.paper.matches import Match
from cat_jax.paper.measured import Number, Run
from cat_jax.paper.published_numbers import Published
from cat_jax.paper.rows import Row, Table

BETTER, WORSE = "!+", "!-"
LEGEND = (
    f"{BETTER} is above and {WORSE} below the published number by more than the root of the sum of "
    "squares of our standard deviation over seeds, theirs, and half of the 95% interval. "
    "x ± s is the mean and standard deviation over seeds; x (±h) is one seed with half of its 95% "
    "Wilson interval; `no run` has no run yet; - was not measured, or not published."
)


@dataclasses.dataclass(frozen=True)
class Cell:
    """A mean over seeds, in percent.

    Attributes:
      mean: mean over the seeds.
      std: standard deviation over the seeds; None for one seed.
      half: half of the 95% interval of one run.
      seeds: number of seeds.
      size: number of test images, the smallest if the seeds differ.
    """

    mean: float
    std: float | None
    half: float | None
    seeds: int
    size: int

    def text(self) -> str:
        """ "95.0 ± 0.3", or "95.0 (±1.5)" for one seed."""
        if self.std is not None:
            return f"{self.mean:.1f} ± {self.std:.1f}"
        return f"{self.mean:.1f}" + (f" (±{self.half:.1f})" if self.half is not None else "")

    def tolerance(self) -> float:
        """The largest difference that chance explains."""
        return math.hypot(self.std or 0.0, self.half or 0.0)


@dataclasses.dataclass(frozen=True)
class Line:
    """A printed line of the table.

    Attributes:
      row: the row of the table.
      whose: "ours" with the differences from the row, or "published".
      cells: numbers by column.
      runs: runs that the numbers average; empty for published numbers.
    """

    row: Row
    whose: str
    cells: Mapping[str, Cell | Published]
    runs: tuple[Run, ...] = ()


def over_seeds(numbers: Sequence[Number]) -> Cell:
    """Averages one number of each seed into a cell."""
    values = [100 * number.value for number in numbers]
    halves = [100 * number.half for number in numbers if number.half is not None]
    return Cell(
        statistics.fmean(values),
        statistics.stdev(values) if len(values) > 1 else None,
        statistics.fmean(halves) if halves else None,
        len(values),
        min(number.size for number in numbers),
    )


def mark(cell: Cell, reference: Published | None) -> str:
    """Returns "!+" or "!-" if the difference exceeds chance, and "" otherwise."""
    if reference is None:
        return ""
    difference = cell.mean - reference.mean
    if abs(difference) <= math.hypot(cell.tolerance(), reference.std or 0.0):
        return ""
    return BETTER if difference > 0 else WORSE


def lines(row: Row, table: Table, matches: Sequence[Match]) -> list[Line]:
    """Returns one line of ours for each way to differ from the row, then the published line.

    Exact runs come first and are never averaged with runs of another length or with another field.
    A run that differs gets a line when it has a number.
    """
    kinds: dict[tuple[str, ...], list[Match]] = {}
    for match in matches:
        kinds.setdefault(match.differences, []).append(match)
    ours = [
        Line(row, ", ".join(("ours", *kind)), *_cells(_longest_of_seeds(of_kind), table))
        for kind, of_kind in sorted(kinds.items(), key=lambda item: (len(item[0]), item[0]))
    ]
    ours = [line for line in ours if line.cells or line.whose == "ours"]
    published = Line(row, "published", published_numbers.of_row(row, table))
    return [*(ours or [Line(row, "ours", {})]), published]


def _longest_of_seeds(matches: Sequence[Match]) -> list[Run]:
    """Returns the run with the most steps of each seed."""
    runs: dict[int, Run] = {}
    for run in (match.run for match in matches):
        if run.seed not in runs or run.step > runs[run.seed].step:
            runs[run.seed] = run
    return [runs[seed] for seed in sorted(runs)]


def _cells(runs: Sequence[Run], table: Table) -> tuple[dict[str, Cell], tuple[Run, ...]]:
    """Averages each column over the runs that have it and did not diverge."""
    numbers = [measured.numbers(run, table) for run in runs if not run.diverged]
    cells = {}
    for column in table.columns:
        if of_column := [of_run[column] for of_run in numbers if column in of_run]:
            cells[column] = over_seeds(of_column)
    return cells, tuple(runs)
