"""Sorts the runs of a folder by the rows of the paper that they are nearest to."""

import collections
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cat_jax.paper import measured, nearest
from cat_jax.paper.measured import Run
from cat_jax.paper.nearest import Nearest
from cat_jax.paper.rows import Row


class Match(NamedTuple):
    """A run beside a row, with the results on one set of images that the row's config asks for."""

    run: Run
    row: Row
    nearest: Nearest

    @property
    def progress(self) -> str:
        """ "step 700 of 24000" of a run that has not ended, else "".

        A diverged run has ended, and so has one with results but no metrics: only its evaluation
        was kept, and the step of best/ does not say how far the training came.
        """
        run, total = self.run, self.row.total_steps(self.run.config)
        has_ended = run.diverged or run.step >= total or (run.results and not run.metrics)
        return "" if has_ended else f"step {run.step} of {total}"

    @property
    def differences(self) -> tuple[str, ...]:
        """How the run differs from its row: length, fields, progress, number of test images."""
        images = measured.images(self.run, self.row)
        return tuple(filter(None, (*self.nearest.differences, self.progress, images)))


class Matches(NamedTuple):
    """The runs of a folder by their rows.

    Attributes:
      by_row: runs by `nearest.key` of the row.
      others: runs without a row in the paper, and weights from files.
    """

    by_row: Mapping[tuple[Any, ...], list[tuple[Run, Nearest]]]
    others: list[Run]

    def of(self, row: Row) -> list[Match]:
        """Returns the runs beside a row, each once for each set of images."""
        return [
            Match(view, row, own)
            for run, own in self.by_row.get(nearest.key(row), ())
            for view in measured.views(run, row)
        ]


def match(runs: Iterable[Run]) -> Matches:
    """Finds the row of each run."""
    by_row: dict[tuple[Any, ...], list[tuple[Run, Nearest]]] = collections.defaultdict(list)
    others = []
    for run in runs:
        own = nearest.find(run.config) if run.is_trained else None
        if own:
            by_row[nearest.key(own.row)].append((run, own))
        else:
            others.append(run)
    return Matches(by_row, others)
