"""The paper's numbers, and which of them a run is to be read beside.

`published.csv` holds every number of the paper's tables and of the authors' released logs, in
percent, keyed by (table, dataset, classifier, row, metric).
"""

import csv
import functools
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

METHODS = {"cat_cent": "CAT_cent", "cat_cw": "CAT_cw", "at": "AT"}
CLASSIFIERS = {
    "SmallCNN": "small_cnn",
    "PreActResNet18": "preact_resnet18",
    "WideResNet": "wide_resnet_34_10",
}
TABLES = ("mnist", "cifar10_preact_resnet18", "cifar10_wide_resnet", "cifar100", "beta", "beta1")


class Published(NamedTuple):
    """A published number, in percent; std is None where none was given."""

    mean: float
    std: float | None


@functools.cache
def numbers() -> dict[tuple[str, ...], Published]:
    """All published numbers, by (table, dataset, classifier, row, metric)."""
    found: dict[tuple[str, ...], Published] = {}
    with open(pathlib.Path(__file__).with_name("published.csv"), newline="") as stream:
        for line in csv.DictReader(stream):
            if line["mean"]:
                key = tuple(line[k] for k in ("table", "dataset", "classifier", "row", "metric"))
                std = float(line["std"]) if line["std"] else None
                found[key] = Published(float(line["mean"]), std)
    return found


def row_names(config: Mapping[str, Any]) -> list[str]:
    """The rows that a run of this config could stand in, in any table; none for its own ones."""
    method = METHODS.get(config["variant"])
    if method is None:
        return []
    if config["dataset"] == "mnist":
        return [f"{method}({config['attack']['epsilon']})"]
    if config["attack"]["epsilon"] != "8/255":
        return []
    if method == "AT":
        return [method]
    beta, beta1 = (f"{config['method'][name]:g}" for name in ("beta", "beta1"))
    both = f"{method}(beta={beta},beta1={beta1})"
    return [f"{method}(beta1={beta1})", both] if beta == "5" else [both]


def published(config: Mapping[str, Any]) -> dict[str, Published]:
    """Published accuracies, by our attack names, for the row that the config stands for.

    The published MNIST attack never clips to [0, 1]: its pgd20 is our `pgd20_unclipped`.
    """
    classifier = CLASSIFIERS.get(config["classifier"]["name"])
    rows = row_names(config)
    found: dict[str, Published] = {}
    for (table, dataset, kind, row, metric), number in numbers().items():
        if table in TABLES and row in rows and (dataset, kind) == (config["dataset"], classifier):
            unclipped = dataset == "mnist" and metric.startswith("pgd")
            found.setdefault(f"{metric}_unclipped" if unclipped else metric, number)
    return found
