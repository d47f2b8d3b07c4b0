"""Accuracy on corrupted images: a row for each kind, a column for each severity, and means."""

import pathlib
from collections.abc import Mapping, Sequence

from cat_jax.experiment import labels
from cat_jax.report import tables
from cat_jax.report.grids import Grid
from cat_jax.storage import lines

CAPTION = "accuracy in percent on corrupted images of cat_jax, which are not those of CIFAR-10-C"
Accuracies = Mapping[tuple[str, int], float]  # By kind and severity.


def corruption_grids(workdirs: Sequence[pathlib.Path]) -> list[Grid]:
    """A table for each set of weights that was evaluated on corrupted images."""
    measured: dict[str, dict[tuple[str, int], float]] = {}
    for workdir in workdirs:
        results = tables.distinct(tables.read(workdir, "results"))
        for line, name in zip(results, labels.all_weights(results), strict=True):
            conditions = line["conditions"]
            if lines.is_corruption(line):
                text = f"{workdir.name}, {name}, {labels.images(conditions, 'images')}"
                place = conditions["kind"], conditions["severity"]
                measured.setdefault(text, {})[place] = line["outcome"]["accuracy"]
    return [_grid(name, accuracies) for name, accuracies in measured.items()]


def _grid(name: str, accuracies: Accuracies) -> Grid:
    kinds = list(dict.fromkeys(kind for kind, _ in accuracies))
    severities = sorted({severity for _, severity in accuracies})
    body = []
    for kind in kinds:
        row = [accuracies[kind, severity] for severity in severities]
        body.append([kind, *map(_percent, row), _percent(_mean(row))])
    columns = [[accuracies[kind, severity] for kind in kinds] for severity in severities]
    means = [_mean(column) for column in columns]
    body.append(["mean", *map(_percent, means), _percent(_mean(means))])
    return Grid("corruptions", f"{name}: {CAPTION}.", ["", *map(str, severities), "mean"], body)


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def _percent(accuracy: float) -> str:
    return f"{100 * accuracy:.1f}"
