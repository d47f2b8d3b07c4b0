"""What a table is: the rows name the runs to launch, and the runs name the rows to print.

Configs are not imported here. What a row's run has by its config file and variant is repeated
below, as data, because it tells the runs in a folder apart; a test holds it against the configs.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

FIVE = (0, 1, 2, 3, 4)  # The paper's CAT rows are means of five runs.
ONE = (0,)
BETA1 = "method.beta1"
# All images are trained on and the last checkpoint is reported: MNIST does not overfit, and the
# published checkpoint was chosen on the test set.
ALL_OF_MNIST = {"num_validation": 0}

# By config file: the data and what its variants share.
FILES: dict[str, dict[str, Any]] = {
    "mnist": {
        "dataset": "mnist",
        "classifier.name": "SmallCNN",
        "attack.epsilon": "0.4",
        "method.beta": 1.0,
        "method.beta1": 0.3,
        "num_epochs": 40,
        "optimizer.drop_epochs": (31,),
        "num_validation": 5000,
        "test.epsilon": "0.3",
        "batch_size": 100,
        "optimizer.learning_rate": 1e-3,
    },
    "preact_cifar10": {
        "dataset": "cifar10",
        "classifier.name": "PreActResNet18",
        "attack.epsilon": "8/255",
        "method.beta": 5.0,
        "method.beta1": 0.05,
        "num_epochs": 140,
        "optimizer.drop_epochs": (100, 120),
        "num_validation": 1000,
        "test.epsilon": "8/255",
        "batch_size": 128,
        "optimizer.learning_rate": 0.1,
    },
}
CIFAR = FILES["preact_cifar10"]
FILES["wrn_cifar10"] = CIFAR | {
    "classifier.name": "WideResNet",
    "optimizer.drop_epochs": (100, 110),
}
FILES["preact_cifar100"] = CIFAR | {
    "dataset": "cifar100",
    "num_epochs": 120,
    "optimizer.drop_epochs": (100, 110),
}
SIZES = {"mnist": (60_000, 10_000), "cifar10": (50_000, 10_000), "cifar100": (50_000, 10_000)}
SHARED: dict[str, Any] = {
    "conventions": "released",
    "selection": "validation",
    "num_steps": 0,
    "method.weight": 5.0,
    "awp.gamma": 0.0,
    "average_decay": 0.0,
}

# By variant, in the config files for CIFAR: the baselines' own schedules.
_RICE = {"num_epochs": 200, "optimizer.drop_epochs": (100, 150)}
_TRADES = {"attack.epsilon": "0.031", "method.beta": 6.0}
BASELINES: dict[str, dict[str, Any]] = {
    "at": _RICE,
    "trades": _TRADES | {"num_epochs": 76, "optimizer.drop_epochs": (74, 89, 99)},
    "mart": {"attack.epsilon": "0.031", "num_epochs": 120, "optimizer.learning_rate": 0.01}
    | {"optimizer.drop_epochs": (74, 89, 99)},
    "fat": _TRADES | {"num_epochs": 85, "optimizer.drop_epochs": (74, 89)},
}
WIDE_MART = {"num_epochs": 90, "optimizer.drop_epochs": (74, 89), "optimizer.learning_rate": 0.1}

# The weights that matter to a variant; the others are not looked at.
WEIGHTS = {
    **dict.fromkeys(("cat_cent", "cat_cw", "cat_kl"), ("method.beta", "method.beta1")),
    **dict.fromkeys(("a1", "a2", "trades", "fat"), ("method.beta",)),
    "mart": ("method.weight",),
    "at": (),
}
# A run that differs in one of these is of another row, or of none.
TELLING = (
    *("dataset", "classifier.name", "variant", "attack.epsilon", "test.epsilon"),
    *("batch_size", "optimizer.learning_rate", "awp.gamma", "average_decay"),
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One trained network of the paper.

    Attributes:
      label: as the paper prints it; in `published.csv` the row's name, if it is there.
      config: name of the config file.
      variant: of that file.
      overrides: fields that the row sets besides.
      seeds: of the runs to launch.
      table: where its published numbers are, if not under the table that it is printed in.
      published: its name there, if that is not the label.
      note: printed below the table.
    """

    label: str
    config: str
    variant: str
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seeds: tuple[int, ...] = ONE
    table: str = ""
    published: str = ""
    note: str = ""

    def expected(self) -> dict[str, Any]:
        """The fields of the row's resolved config that are known here, by their paths."""
        own = {} if self.config == "mnist" else BASELINES.get(self.variant, {})
        if (self.config, self.variant) == ("wrn_cifar10", "mart"):
            own = own | WIDE_MART
        of_variant = {"variant": self.variant, **own}
        return SHARED | FILES[self.config] | of_variant | dict(self.overrides)

    def telling(self) -> dict[str, Any]:
        """Those that tell the row's runs from others."""
        names = (*TELLING, *WEIGHTS[self.variant])
        return {name: value for name, value in self.expected().items() if name in names}

    def total_steps(self, config: Mapping[str, Any]) -> int:
        """How many steps a run of this row takes under its own config."""
        if steps := config["num_steps"]:
            return int(steps)
        num_train = SIZES[config["dataset"]][0] - config["num_validation"]
        return math.ceil(config["num_epochs"] * num_train / config["batch_size"])


@dataclasses.dataclass(frozen=True)
class Panel:
    """One set of axes of a figure.

    Attributes:
      title: above it.
      y: the metric, or a sum of two, "natural+pgd20".
      x: a field of the rows' configs; "epoch" for curves over training.
      lines: (label, labels of the rows that the line joins).
      minus: what the paper's axis takes off each metric.
    """

    title: str
    y: tuple[str, ...]
    x: str
    lines: tuple[tuple[str, tuple[str, ...]], ...]
    minus: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Table:
    """One table or figure of the paper.

    Attributes:
      name: on the command line; the first column of `published.csv` where it is there.
      title: with the place in the paper.
      rows: what is trained.
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
