"""Finds the published numbers to print beside the results of a run."""

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from cat_jax.experiment import suites
from cat_jax.paper import nearest, published_numbers, runs
from cat_jax.paper.matches import Match
from cat_jax.paper.nearest import Nearest
from cat_jax.paper.rows import Row


class Reference(NamedTuple):
    """The row of the paper that a run is nearest to.

    Attributes:
      nearest: the row, and how the run's config differs from it.
      progress: "step 700 of 24000" of a run that has not ended, else "".
    """

    nearest: Nearest
    progress: str

    @property
    def caption(self) -> str:
        """The row's name and the run's differences from it."""
        text = f"the nearest row of the paper is {self.nearest.row.label}"
        differences = ", ".join(filter(None, (*self.nearest.differences, self.progress)))
        return f"{text}; the run differs: {differences}" if differences else text

    def text(self, conditions: Mapping[str, Any]) -> str:
        """Returns the published number beside a result, or "" if the paper has none.

        Args:
          conditions: conditions of the result; the paper's have to be the same.
        """
        for table, row in nearest.alike(self.nearest.row):
            number = published_numbers.of_row(row, table).get(conditions["attack"])
            if number and _is_measured_so(row, conditions):
                return number.text()
        return ""


def of_run(workdir: pathlib.Path) -> Reference | None:
    """Returns the row that a run is nearest to, or None if the paper has none.

    Raises:
      UsageError: if config.json is damaged or has an unknown field.
      Damaged: if a file of lines is damaged.
    """
    run = runs.read(workdir)
    own = nearest.find(run.config)
    if own is None:
        return None
    # Without metrics, nothing says how far the training came: weights may be from a file.
    return Reference(own, Match(run, own.row, own).progress if run.metrics else "")


def _is_measured_so(row: Row, conditions: Mapping[str, Any]) -> bool:
    suite = suites.listed(row.resolved({"evaluation": "paper"}))
    return any(attack.agrees(conditions) for attack in suite)
