"""Which row of the paper a run belongs to, decided by its complete config.

A run belongs to a row if every field that affects training agrees; by their conditions, a row then
takes those of its results that were measured as its config measures. Any other run stands beside
the row that it differs least from, labelled with each field that differs; where several rows are
equally near, beside none.
"""

import collections
import functools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cat_jax.experiment import run_config
from cat_jax.experiment.fields import BOTH, FIELDS, TRAINING
from cat_jax.experiment.limits import EPOCHS
from cat_jax.paper import commands, measured
from cat_jax.paper.catalogue import TABLES
from cat_jax.paper.measured import Run
from cat_jax.paper.rows import Row

SEED = "seed"  # A row has several.
TRAINED = [path for path, field in FIELDS.items() if field.affects & TRAINING and path != SEED]
# The data and the network: they decide what an evaluation measures, too.
IDENTITY = [path for path in TRAINED if FIELDS[path].affects == BOTH]
LENGTH = [path for path in TRAINED if FIELDS[path].longer]


class Match(NamedTuple):
    """A run beside a row, with the results that the row's config asks for, on one set of images.

    `changes` are the fields of training in which it differs from the row, apart from its length.
    """

    run: Run
    row: Row
    changes: Mapping[str, Any]

    @property
    def length(self) -> str:
        """ "2 of 40 epochs" or "500 steps" for a run that is shorter than the row; or ""."""
        own, full = self.run.config, self.row.config()
        if own["num_steps"]:
            return f"{own['num_steps']} steps"
        if own["num_epochs"] != full["num_epochs"]:
            return f"{own['num_epochs']} of {full['num_epochs']} epochs"
        return ""

    @property
    def differences(self) -> tuple[str, ...]:
        """How the run differs from its row: length, fields, and the number of test images."""
        fields = [_flag(path, value) for path, value in self.changes.items()]
        return tuple(filter(None, (self.length, *fields, self.run.images)))


def _flag(path: str, value: Any) -> str:
    """ "attack.epsilon=8/255", as the command line takes it."""
    return f"{path}={run_config.as_given({path: value})[path]}"


class Matches(NamedTuple):
    """The runs of a folder by their rows.

    Attributes:
      by_row: runs and their `changes`, by `_key` of the row.
      others: the runs that belong to no row of the paper and are near none.
    """

    by_row: Mapping[tuple[Any, ...], list[tuple[Run, Mapping[str, Any]]]]
    others: list[Run]

    def of(self, row: Row) -> list[Match]:
        """The runs beside a row; a run is there once for each set of images."""
        return [
            Match(view, row, changes)
            for run, changes in self.by_row.get(_key(row), ())
            for view in measured.views(run, row)
        ]


def match(runs: Iterable[Run]) -> Matches:
    """Finds the row of each run."""
    by_row: dict[tuple[Any, ...], list[tuple[Run, Mapping[str, Any]]]]
    by_row = collections.defaultdict(list)
    others = []
    for run in runs:
        if nearest := _nearest(run):
            row, changes = nearest
            by_row[_key(row)].append((run, changes))
        else:
            others.append(run)
    return Matches(by_row, others)


def _nearest(run: Run) -> tuple[Row, dict[str, Any]] | None:
    """The row that a run differs least from, and its `changes`; None if several differ as little.

    Rows of another variant, network or data set are not compared.
    """
    differing = [(row, _changes(run, row)) for row in _rows() if _is_comparable(run, row)]
    fewest = min((len(changes) for _, changes in differing), default=0)
    nearest = [pair for pair in differing if len(pair[1]) == fewest]
    return nearest[0] if len(nearest) == 1 else None


@functools.cache
def _rows() -> list[Row]:
    """One row of the catalogue for each training."""
    rows = {_key(row): row for table in TABLES.values() for row in table.rows}
    return list(rows.values())


def _key(row: Row) -> tuple[Any, ...]:
    """Equal for rows that train the same."""
    return tuple(row.config()[path] for path in TRAINED)


def _is_comparable(run: Run, row: Row) -> bool:
    own = row.config()
    return run.config["variant"] == row.variant and all(run.config[p] == own[p] for p in IDENTITY)


def _changes(run: Run, row: Row) -> dict[str, Any]:
    """The fields that turn the row's training into the run's, apart from its length.

    A field that follows from an earlier one, as many do from the conventions, is not among them;
    nor are the epochs of a schedule that is shortened with the training.
    """
    length = {path: run.config[path] for path in LENGTH}
    share = run.config["num_epochs"] / row.config()["num_epochs"]
    changes: dict[str, Any] = {}
    for path in TRAINED:
        own, expected = run.config[path], row.config(length | changes)[path]
        is_shortened = FIELDS[path].limit is EPOCHS and own == commands.shortened(expected, share)
        if own != expected and not is_shortened:
            changes[path] = own
    return changes
