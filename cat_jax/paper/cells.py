"""A row's numbers over its seeds, in percent, and how they stand to what was published."""

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
    f"{BETTER} above, {WORSE} below the published number by more than the root of the sum of "
    "squares of our seeds' standard deviation, theirs, and half the 95% interval. "
    "x ± s: mean and standard deviation over seeds; x (±h): one seed, half of its 95% Wilson "
    "interval. no run: nothing here has it yet; -: not measured, or not published."
)


@dataclasses.dataclass(frozen=True)
class Cell:
    """A mean over seeds, in percent.

    Attributes:
      mean: mean over the seeds.
      std: standard deviation over them; None for one.
      half: half of the 95% interval of one run.
      seeds: how many.
      size: images in each test, the smallest if they differ.
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
        """The difference that chance alone may make."""
        return math.hypot(self.std or 0.0, self.half or 0.0)


@dataclasses.dataclass(frozen=True)
class Line:
    """A printed line: whose numbers, and each by its column.

    Attributes:
      row: the row of the table.
      whose: "ours", with what differs from the row in words, or "published".
      cells: by column.
      runs: the runs that the numbers are means over; none for published numbers.
    """

    row: Row
    whose: str
    cells: Mapping[str, Cell | Published]
    runs: tuple[Run, ...] = ()


def over_seeds(numbers: Sequence[Number]) -> Cell:
    """The mean of one number of each seed, as a cell."""
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
    """ "!+" or "!-" if the difference is more than chance; "" if not, or without a reference."""
    if reference is None:
        return ""
    difference = cell.mean - reference.mean
    if abs(difference) <= math.hypot(cell.tolerance(), reference.std or 0.0):
        return ""
    return BETTER if difference > 0 else WORSE


def lines(row: Row, table: Table, matches: Sequence[Match]) -> list[Line]:
    """Ours, a line for each way to differ from the row, exact ones first; then the published one.

    Runs of another length, or with another field, are never averaged with exact ones, and have no
    line before they have a number.
    """
    kinds: dict[tuple[str, ...], list[Match]] = {}
    for match in matches:
        kinds.setdefault(match.differences, []).append(match)
    ours = [
        Line(row, ", ".join(("ours", *kind)), *_cells(_one_a_seed(of_kind), table))
        for kind, of_kind in sorted(kinds.items(), key=lambda item: (len(item[0]), item[0]))
    ]
    ours = [line for line in ours if line.cells or line.whose == "ours"]
    published = Line(row, "published", published_numbers.of_row(row, table))
    return [*(ours or [Line(row, "ours", {})]), published]


def _one_a_seed(matches: Sequence[Match]) -> list[Run]:
    """One run for each seed: the one with more steps."""
    runs: dict[int, Run] = {}
    for run in (match.run for match in matches):
        if run.seed not in runs or run.step > runs[run.seed].step:
            runs[run.seed] = run
    return [runs[seed] for seed in sorted(runs)]


def _cells(runs: Sequence[Run], table: Table) -> tuple[dict[str, Cell], tuple[Run, ...]]:
    """Each column over the runs that have it; a run that diverged has none."""
    numbers = [measured.numbers(run, table) for run in runs if not run.diverged]
    cells = {}
    for column in table.columns:
        if of_column := [of_run[column] for of_run in numbers if column in of_run]:
            cells[column] = over_seeds(of_column)
    return cells, tuple(runs)
