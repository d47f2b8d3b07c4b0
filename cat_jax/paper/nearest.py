"""The row of the paper that a config is nearest to, and how it differs from it.

A run belongs to a row if every field that affects training agrees. Any other run stands beside the
row that it differs least from, labelled with each field that differs; where several rows are
equally near, beside none.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from cat_jax.experiment import run_config
from cat_jax.experiment.fields import BOTH, FIELDS, TRAINING
from cat_jax.experiment.limits import EPOCHS
from cat_jax.paper import commands
from cat_jax.paper.catalogue import TABLES
from cat_jax.paper.rows import Row, Table

Config = Mapping[str, Any]  # Resolved, by dotted paths.
SEED = "seed"  # A row has several.
TRAINED = [path for path, field in FIELDS.items() if field.affects & TRAINING and path != SEED]
# The data and the network: they decide what an evaluation measures, too.
IDENTITY = [path for path in TRAINED if FIELDS[path].affects == BOTH]
LENGTH = [path for path in TRAINED if FIELDS[path].longer]


class Nearest(NamedTuple):
    """The row that a config is nearest to.

    Attributes:
      row: the first of the rows with this training; several tables may have it.
      length: "2 of 40 epochs" or "500 steps" if the config's training is shorter; or "".
      changes: the other fields of training that differ, with the config's values.
    """

    row: Row
    length: str
    changes: Mapping[str, Any]

    @property
    def differences(self) -> tuple[str, ...]:
        """The length, and each changed field as the command line takes it."""
        flags = [f"{path}={value}" for path, value in run_config.as_given(self.changes).items()]
        return (self.length, *flags) if self.length else tuple(flags)


def find(config: Config) -> Nearest | None:
    """The row that a config is nearest to; None if several are equally near.

    Rows of another variant, network or data set are not compared.
    """
    rows = {key(row): row for _, row in reversed(_rows_of(config["variant"]))}
    comparable = [row for row in rows.values() if _has_identity(config, row)]
    differing = [(row, _changes(config, row)) for row in comparable]
    fewest = min((len(changes) for _, changes in differing), default=0)
    nearest = [pair for pair in differing if len(pair[1]) == fewest]
    if len(nearest) != 1:
        return None
    row, changes = nearest[0]
    return Nearest(row, _length(config, row), changes)


def key(row: Row) -> tuple[Any, ...]:
    """Equal for rows that train the same."""
    return tuple(row.config()[path] for path in TRAINED)


def alike(row: Row) -> list[tuple[Table, Row]]:
    """The rows of all tables that train the same as this one, itself included."""
    return [(table, other) for table, other in _rows_of(row.variant) if key(other) == key(row)]


@functools.cache
def _rows_of(variant: str) -> list[tuple[Table, Row]]:
    return [(t, row) for t in TABLES.values() for row in t.rows if row.variant == variant]


def _has_identity(config: Config, row: Row) -> bool:
    own = row.config()
    return all(config[path] == own[path] for path in IDENTITY)


def _length(config: Config, row: Row) -> str:
    if config["num_steps"]:
        return f"{config['num_steps']} steps"
    num_epochs = row.config()["num_epochs"]
    same = config["num_epochs"] == num_epochs
    return "" if same else f"{config['num_epochs']} of {num_epochs} epochs"


def _changes(config: Config, row: Row) -> dict[str, Any]:
    """The fields that turn the row's training into the config's, apart from its length.

    A field that follows from an earlier one, as many do from the conventions, is not among them;
    nor are the epochs of a schedule that is shortened with the training.
    """
    length = {path: config[path] for path in LENGTH}
    share = config["num_epochs"] / row.config()["num_epochs"]
    changes: dict[str, Any] = {}
    for path in TRAINED:
        own, expected = config[path], row.config(length | changes)[path]
        is_shortened = FIELDS[path].limit is EPOCHS and own == commands.shortened(expected, share)
        if own != expected and not is_shortened:
            changes[path] = own
    return changes
