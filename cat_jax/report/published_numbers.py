"""The paper's numbers, and which of them a run is to be read beside.

`published.csv` holds every number of the paper's tables and of the authors' released logs, in
percent, keyed by (table, dataset, classifier, row, metric).
"""

import csv
import functools
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from cat_jax.configs import mnist, preact_cifar10, preact_cifar100, wrn_cifar10
from cat_jax.experiment import settings, suites
from cat_jax.experiment.limits import radius_text

# Variant -> its name in the paper's tables, and which of its weights stand beside it.
METHODS = {
    "cat_cent": ("CAT_cent", ("beta", "beta1")),
    "cat_cw": ("CAT_cw", ("beta", "beta1")),
    "at": ("AT", ()),
    "trades": ("TRADES", ("beta",)),
    "mart": ("MART", ("weight",)),
    "fat": ("FAT", ("beta",)),
}
SYMBOLS = {"weight": "lambda"}
TRAINED_AT = ("8/255", "0.031")  # The radii of the CIFAR tables.
CLASSIFIERS = {
    "SmallCNN": "small_cnn",
    "PreActResNet18": "preact_resnet18",
    "WideResNet": "wide_resnet_34_10",
}
CONFIGS = {
    ("mnist", "SmallCNN"): mnist,
    ("cifar10", "PreActResNet18"): preact_cifar10,
    ("cifar10", "WideResNet"): wrn_cifar10,
    ("cifar100", "PreActResNet18"): preact_cifar100,
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
    if config["variant"] not in METHODS:
        return []
    method, weights = METHODS[config["variant"]]
    epsilon = radius_text(config["attack"]["epsilon"])
    if config["dataset"] == "mnist":
        return [f"{method}({epsilon})"]
    if epsilon not in TRAINED_AT:
        return []
    values = {SYMBOLS.get(name, name): f"{config['method'][name]:g}" for name in weights}
    every = f"{method}({','.join(f'{name}={value}' for name, value in values.items())})"
    if not weights:
        return [method]
    if values.get("beta") == "5" and "beta1" in values:  # The tables leave out CAT's usual beta.
        return [f"{method}(beta1={values['beta1']})", every]
    return [every]


def beside(config: Mapping[str, Any], conditions: Mapping[str, Any]) -> Published | None:
    """The number to print beside a result of a run; None unless the paper measured the same.

    Args:
      config: of the run, which says of which row it is.
      conditions: of the result.
    """
    number = published(config).get(conditions["attack"])
    if number is None or not any(attack.agrees(conditions) for attack in _tested(config)):
        return None
    return number


def _tested(config: Mapping[str, Any]) -> list[suites.Listed]:
    """The attacks of the paper's tables for this data set and network, as the configs have them."""
    module = CONFIGS[config["dataset"], config["classifier"]["name"]]
    of_table = module.get_config("at")
    of_table.evaluation = "paper"
    if config["variant"] == "fat" and module is wrn_cifar10:
        of_table.test.epsilon = "0.031"  # The paper copied these numbers from FAT's.
    return suites.listed(settings.resolve(of_table))


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
