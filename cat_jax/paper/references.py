"""The published numbers to print beside the results of a run."""

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from cat_jax.experiment import run_config, settings, suites
from cat_jax.paper import nearest, published_numbers
from cat_jax.paper.nearest import Nearest
from cat_jax.paper.rows import Row


class Reference(NamedTuple):
    """The row of the paper that a run is nearest to."""

    nearest: Nearest

    @property
    def caption(self) -> str:
        """Names the row, and each way in which the run differs from it."""
        text = f"the row of the paper nearest to it is {self.nearest.row.label}"
        differences = ", ".join(self.nearest.differences)
        return f"{text}, from which it differs: {differences}" if differences else text

    def text(self, conditions: Mapping[str, Any]) -> str:
        """The number to print beside a result; "" unless the paper measured under its conditions.

        Args:
          conditions: part of the result's line.
        """
        for table, row in nearest.alike(self.nearest.row):
            number = published_numbers.of_row(row, table).get(conditions["attack"])
            if number and _is_measured_so(row, conditions):
                return number.text()
        return ""


def of_run(workdir: pathlib.Path) -> Reference | None:
    """The row that a run is nearest to; None if the paper has none.

    Raises:
      UsageError: if config.json is damaged or has an unknown field.
    """
    config = settings.flat(settings.resolve(run_config.get_config(str(workdir))))
    own = nearest.find(config)
    return Reference(own) if own else None


def _is_measured_so(row: Row, conditions: Mapping[str, Any]) -> bool:
    suite = suites.listed(row.resolved({"evaluation": "paper"}))
    return any(attack.agrees(conditions) for attack in suite)
