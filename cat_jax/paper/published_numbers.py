"""Reads the paper's numbers.

`published.csv` holds every number of the paper's tables and of the authors' released logs, in
percent, keyed by (table, dataset, classifier, row, metric).
"""

import csv
import functools
import pathlib
from typing import NamedTuple

from cat_jax.paper import measured
from cat_jax.paper.rows import Row, Table


class Published(NamedTuple):
    """A published number in percent; std is None if none was published."""

    mean: float
    std: float | None

    def text(self) -> str:
        """ "84.2 ± 0.3", or "84.2"."""
        return f"{self.mean:.1f}" + (f" ± {self.std:g}" if self.std is not None else "")


@functools.cache
def numbers() -> dict[tuple[str, ...], Published]:
    """Returns all published numbers by (table, dataset, classifier, row, metric)."""
    published: dict[tuple[str, ...], Published] = {}
    with open(pathlib.Path(__file__).with_name("published.csv"), newline="") as stream:
        for line in csv.DictReader(stream):
            if line["mean"]:
                key = tuple(line[k] for k in ("table", "dataset", "classifier", "row", "metric"))
                std = float(line["std"]) if line["std"] else None
                published[key] = Published(float(line["mean"]), std)
    return published


def of_row(row: Row, table: Table) -> dict[str, Published]:
    """Returns the paper's numbers of a row by our columns, with averages and sums.

    The published MNIST attack never clips to [0, 1], so its pgd20 is our `pgd20_unclipped`.
    """
    config = row.config()
    place = (row.table or table.name, config["dataset"], config["classifier.name"])
    published: dict[str, Published] = {}
    for (*of_table, label, metric), number in numbers().items():
        if (*of_table, label) == (*place, row.published or row.label):
            unclipped = config["dataset"] == "mnist" and metric.startswith("pgd")
            published[f"{metric}_unclipped" if unclipped else metric] = number
    for column in table.columns:
        parts = measured.terms(column, table.columns)
        if len(parts) > 1:
            published.pop(column, None)
            if all(part in published for part in parts):
                share = len(parts) if column == "average" else 1
                published[column] = Published(sum(published[p].mean for p in parts) / share, None)
    return {column: published[column] for column in table.columns if column in published}
