"""Finds the row of the paper that a config is nearest to, and lists the differences.

A run belongs to a row if every field that affects training agrees. Any other run stands beside the
row that it differs least from, labelled with each field that differs. If several rows are equally
near, it stands beside none.
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
SEED = "seed"  # Not compared, because a row has several.
TRAINED = [path for path, field in FIELDS.items() if field.affects & TRAINING and path != SEED]
# Data and network, which affect training and evaluation.
IDENTITY = [path for path in TRAINED if FIELDS[path].affects == BOTH]
LENGTH = [path for path in TRAINED if FIELDS[path].longer]


class Nearest(NamedTuple):
    """The row that a config is nearest to.

    Attributes:
      row: first row with this training; several tables may contain it.
      length: "2 of 40 epochs" or "500 steps" if the training has another length, else "".
      changes: other fields of training that differ, with the config's values.
    """

    row: Row
    length: str
    changes: Mapping[str, Any]

    @property
    def differences(self) -> tuple[str, ...]:
        """The length, and each changed field as a flag."""
        flags = [f"{path}={value}" for path, value in run_config.as_given(self.changes).items()]
        return (self.length, *flags) if self.length else tuple(flags)


def find(config: Config) -> Nearest | None:
    """Returns the row that a config is nearest to, or None if several are equally near.

    It compares rows of the same variant, network and data set.
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
    """Returns a key that is equal for rows with the same training."""
    return tuple(row.config()[path] for path in TRAINED)


def alike(row: Row) -> list[tuple[Table, Row]]:
    """Returns the rows of all tables with the same training, including this row."""
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
    """Returns the fields that turn the row's training into the config's, apart from its length.

    It leaves out fields that follow from an earlier one, such as the conventions, and epochs of a
    schedule that shrink with the training.
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
