"""What a table is: the rows name the runs to launch, and the runs name the rows to print."""

import dataclasses
import functools
import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ml_collections import ConfigDict

from cat_jax import data
from cat_jax.experiment import run_config, settings
from cat_jax.runtime.registry import records_of

FIVE = (0, 1, 2, 3, 4)  # The paper's CAT rows are means of five runs.
ONE = (0,)
BETA1 = "method.beta1"
# All images are trained on and the last checkpoint is reported: MNIST does not overfit, and the
# published checkpoint was chosen on the test set.
ALL_OF_MNIST = {"num_validation": 0}
Items = tuple[tuple[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class Row:
    """One trained network of the paper.

    Attributes:
      label: the name that the paper prints; in `published.csv` the row's name, if it is there.
      file: name of the config file.
      variant: variant of that file.
      overrides: fields that the row sets besides.
      seeds: seeds of the runs to launch.
      table: the table with its published numbers, if not the one that it is printed in.
      published: its name there, if that is not the label.
      note: printed below the table.
    """

    label: str
    file: str
    variant: str
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seeds: tuple[int, ...] = ONE
    table: str = ""
    published: str = ""
    note: str = ""

    def resolved(self, changes: Mapping[str, Any] = MappingProxyType({})) -> ConfigDict:
        """The config that a run of the row resolves, with these fields changed."""
        return _resolved(self.file, self.variant, self._items(changes))

    def config(self, changes: Mapping[str, Any] = MappingProxyType({})) -> Mapping[str, Any]:
        """`resolved` by dotted paths."""
        return _flat(self.file, self.variant, self._items(changes))

    def _items(self, changes: Mapping[str, Any]) -> Items:
        return tuple({**self.overrides, **changes}.items())

    def total_steps(self, config: Mapping[str, Any]) -> int:
        """How many steps a run of this row takes under its own config."""
        if steps := config["num_steps"]:
            return int(steps)
        num_train = source(config["dataset"]).num_train - config["num_validation"]
        return data.Clock(num_train, config["batch_size"]).steps_until(config["num_epochs"])


def source(dataset: str) -> data.Source:
    """The record of a data set, which has its sizes."""
    return records_of(data.Source)[dataset]


@functools.cache
def _resolved(file: str, variant: str, overrides: Items) -> ConfigDict:
    config = importlib.import_module(f"cat_jax.configs.{file}").get_config(variant)
    config.update_from_flattened_dict(run_config.as_given(dict(overrides)))
    return settings.resolve(config)


@functools.cache
def _flat(file: str, variant: str, overrides: Items) -> Mapping[str, Any]:
    return MappingProxyType(settings.flat(_resolved(file, variant, overrides)))


@dataclasses.dataclass(frozen=True)
class Panel:
    """One set of axes of a figure.

    Attributes:
      title: above it.
      y: the metric, or a sum of two, "natural+pgd20".
      x: a field of the rows' configs; "epoch" for curves over training.
      x_label: name of the axis.
      lines: (label, labels of the rows that the line joins).
      minus: the constant that the paper's axis subtracts from each metric.
      x_unit: the axis shows the field divided by this.
      x_scale: "linear" or "log".
    """

    title: str
    y: tuple[str, ...]
    x: str
    x_label: str
    lines: tuple[tuple[str, tuple[str, ...]], ...]
    minus: Mapping[str, float] = dataclasses.field(default_factory=dict)
    x_unit: float = 1.0
    x_scale: str = "linear"


@dataclasses.dataclass(frozen=True)
class Table:
    """One table or figure of the paper.

    Attributes:
      name: on the command line; the first column of `published.csv` where it is there.
      title: with the place in the paper.
      rows: the networks to train.
      columns: metrics as in results.jsonl; "average" and sums, "natural+pgd100", are computed;
        pgd10 and what is beside it are of metrics.jsonl, where `curves` is set.
      curves: numbers come from the validations while training, as the ablations' do.
      panels: of the figure; none: the table has no figure.
      note: printed below it.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    curves: bool = False
    panels: tuple[Panel, ...] = ()
    note: str = ""
