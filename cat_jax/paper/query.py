"""A query of the command line: runs, seeds and scale."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

from cat_jax.paper import commands, matches
from cat_jax.paper.matches import Match, Matches
from cat_jax.paper.measured import Run
from cat_jax.paper.nearest import LENGTH
from cat_jax.paper.rows import Row


@dataclasses.dataclass(frozen=True)
class Query:
    """The runs that tables are filled from.

    Attributes:
      runs: all runs of the folder.
      folder: folder as the user wrote it.
      seeds: seeds to read; None: all seeds of the runs, and the seeds of each row to launch.
      scale: share of the epochs and of the test images; below 1 only runs of that length count.
    """

    runs: Sequence[Run]
    folder: str = "runs"
    seeds: tuple[int, ...] | None = None
    scale: float = 1.0

    @functools.cached_property
    def matches(self) -> Matches:
        """The runs by their rows."""
        return matches.match(self.runs)

    def of(self, row: Row) -> list[Match]:
        """Returns the runs beside a row, at scale 1 of any length."""
        chosen = [m for m in self.matches.of(row) if self.seeds is None or m.run.seed in self.seeds]
        return chosen if self.scale == 1 else [m for m in chosen if self._has_length(m)]

    def exact(self, row: Row) -> list[Match]:
        """Returns the runs that belong to a row at the scale, on any number of test images."""
        return [m for m in self.of(row) if not m.nearest.changes and self._has_length(m)]

    def launched(self, row: Row) -> Iterator[tuple[int, Match | None]]:
        """Yields each seed to launch with the run that belongs to the row, or None."""
        exact = self.exact(row)
        for seed in self.seeds if self.seeds is not None else row.seeds:
            of_seed = [match for match in exact if match.run.seed == seed]
            yield seed, max(of_seed, key=lambda match: match.run.step, default=None)

    def _has_length(self, match: Match) -> bool:
        own = tuple(match.run.config[path] for path in LENGTH)
        return own == commands.length(match.row, self.scale)
