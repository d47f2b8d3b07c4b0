"""The runs of a folder by the rows of the paper that they are nearest to."""

import collections
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cat_jax.paper import measured, nearest
from cat_jax.paper.measured import Run
from cat_jax.paper.nearest import Nearest
from cat_jax.paper.rows import Row


class Match(NamedTuple):
    """A run beside a row, with the results that the row's config asks for, on one set of images."""

    run: Run
    row: Row
    nearest: Nearest

    @property
    def differences(self) -> tuple[str, ...]:
        """How the run differs from its row: length, fields, and the number of test images."""
        return tuple(filter(None, (*self.nearest.differences, measured.images(self.run, self.row))))


class Matches(NamedTuple):
    """The runs of a folder by their rows.

    Attributes:
      by_row: runs by `nearest.key` of the row.
      others: the runs that are near no row of the paper, and weights from elsewhere.
    """

    by_row: Mapping[tuple[Any, ...], list[tuple[Run, Nearest]]]
    others: list[Run]

    def of(self, row: Row) -> list[Match]:
        """The runs beside a row; a run is there once for each set of images."""
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
