"""Tables as data: a row names the runs to launch and decides which runs belong to it."""

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
# Train on all images and report the last checkpoint, because MNIST does not overfit and the
# published checkpoint was chosen on the test set.
ALL_OF_MNIST = {"num_validation": 0}
RELEASED = {"conventions": "released"}  # Because `at` on MNIST has another default.
Items = tuple[tuple[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class Row:
    """One trained network of the paper.

    Attributes:
      label: name that the paper prints, and the row's name in `published.csv`.
      file: name of the config file.
      variant: variant of that file.
      overrides: other fields that the row sets.
      seeds: seeds of the runs to launch.
      table: table with the published numbers, if it is not the row's own.
      published: name in that table, if it is not the label.
      note: note below the table.
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
        """Returns the resolved config of the row, with these fields changed."""
        return _resolved(self.file, self.variant, self._items(changes))

    def config(self, changes: Mapping[str, Any] = MappingProxyType({})) -> Mapping[str, Any]:
        """Returns `resolved` by dotted paths."""
        return _flat(self.file, self.variant, self._items(changes))

    def _items(self, changes: Mapping[str, Any]) -> Items:
        return tuple({**self.overrides, **changes}.items())

    def total_steps(self, config: Mapping[str, Any]) -> int:
        """Returns the number of training steps of a run of this row with its own config."""
        if steps := config["num_steps"]:
            return int(steps)
        num_train = source(config["dataset"]).num_train - config["num_validation"]
        return data.Clock(num_train, config["batch_size"]).steps_until(config["num_epochs"])


def source(dataset: str) -> data.Source:
    """Returns the record of a data set, which has its sizes."""
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
      title: title above the axes.
      y: metrics, or sums of two, "natural+pgd20".
      x: field of the rows' configs, or "epoch" for curves over training.
      x_label: label of the x axis.
      lines: label of each line, and the labels of the rows that it joins.
      minus: constant that the paper's axis subtracts from each metric.
      x_unit: divisor of the field on the axis.
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
      name: name on the command line and in the first column of `published.csv`.
      title: title with the place in the paper.
      rows: networks to train.
      columns: metrics of results.jsonl, or of metrics.jsonl with `curves`; "average" and sums such
        as "natural+pgd100" are computed.
      curves: whether the numbers come from validations during training, as in the ablations.
      panels: axes of the figure; without any, the figure has bars.
      note: note below the table.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    curves: bool = False
    panels: tuple[Panel, ...] = ()
    note: str = ""
