"""Reads the numbers of a run: accuracies of best/, validation curves, means of masks."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cat_jax.experiment import labels, suites
from cat_jax.intervals import wilson
from cat_jax.paper.rows import Row, Table, source
from cat_jax.storage import lines
from cat_jax.storage.lines import Line
from cat_jax.storage.run_folder import RunFolder


@dataclasses.dataclass(frozen=True)
class Number:
    """A measured share, as a fraction.

    Attributes:
      value: accuracy, or mean of a mask.
      half: half the width of the 95% interval, or None.
      size: number of images.
    """

    value: float
    half: float | None
    size: int


@dataclasses.dataclass(frozen=True)
class Run:
    """A workdir: `config` by dotted paths, and the lines of its files.

    `points` are the lines of accuracy against epsilon. `is_trained` is False if the run evaluated
    weights from a file, because their training had another config.
    """

    workdir: pathlib.Path
    config: Mapping[str, Any]
    results: Sequence[Mapping[str, Any]]
    metrics: Sequence[Mapping[str, Any]]
    commands: Sequence[Mapping[str, Any]]
    checks: Sequence[Mapping[str, Any]]
    points: Sequence[Mapping[str, Any]] = ()
    is_trained: bool = True

    @property
    def seed(self) -> int:
        """The seed of initialisation, batches and noise."""
        return int(self.config["seed"])

    @property
    def step(self) -> int:
        """The last step in metrics.jsonl and results.jsonl."""
        evaluated = [line["attacked"]["step"] or 0 for line in self.results]
        return max([*evaluated, *(line["step"] for line in self.metrics)], default=0)

    @property
    def diverged(self) -> bool:
        """Whether metrics.jsonl has a number that is not finite."""
        return bool(lines.first_non_finite(self.metrics))


def views(run: Run, row: Row) -> list[Run]:
    """Returns the run once for each set of images, with the results that its row asks for.

    A result belongs to a row only if its conditions, such as radius and steps, are those of the
    row's config. The set of images with the most attacks comes first.
    """
    config = row.resolved({"evaluation": "paper,standard"})
    suite = suites.listed(config)
    groups: dict[str, list[Line]] = {}
    for line in lines.newest(run.results):
        is_best = line["attacked"]["checkpoint"] == "best"
        if is_best and any(attack.agrees(line["conditions"]) for attack in suite):
            groups.setdefault(labels.images(line["conditions"]), []).append(line)
    by_size = sorted(groups.values(), key=lambda group: (-len(group), -_size(group[0])))
    return [dataclasses.replace(run, results=group) for group in by_size or [[]]]


def images(run: Run, row: Row) -> str:
    """Returns "500 test images" if the run was tested on a part of the test split, else "".

    A subset that differs from the row's is named too.
    """
    size, config = run.config["test.num_examples"], row.config()
    text = f"{size} test images"
    if run.results:
        size = _size(run.results[0])
        usual = f" ({labels.balanced(config['test.subset_seed'])})"
        text = labels.images(run.results[0]["conditions"], "test images").removesuffix(usual)
    return text if 0 < size < source(config["dataset"]).num_test else ""


def _size(line: Line) -> int:
    return int(line["conditions"]["num_examples"])


def numbers(run: Run, table: Table) -> dict[str, Number]:
    """Returns the numbers that a run has, by the columns of the table."""
    if table.curves:
        own = _of_validation(run)
    elif table.columns[0].startswith("mask_"):
        own = _of_masks(run)
    else:
        own = _of_results(run)
    for column in table.columns:
        parts = terms(column, table.columns)
        if len(parts) > 1 and all(part in own for part in parts):
            own[column] = _combined([own[part] for part in parts], mean=column == "average")
    return {column: own[column] for column in table.columns if column in own}


def terms(column: str, columns: Sequence[str]) -> list[str]:
    """Returns the metrics of a column: all before an "average", or the terms of a sum."""
    return list(columns[: columns.index(column)]) if column == "average" else column.split("+")


def _combined(parts: Sequence[Number], mean: bool) -> Number:
    share = 1 / len(parts) if mean else 1.0
    halves = [part.half for part in parts if part.half is not None]
    # Because the images are the same, so errors may coincide: this is the widest interval.
    half = share * sum(halves) if halves else None
    return Number(share * sum(p.value for p in parts), half, min(p.size for p in parts))


def _of_results(run: Run) -> dict[str, Number]:
    """Returns the accuracies of a run from `views`, by the names of the attacks."""
    accuracies = {}
    for line in run.results:
        low, high = line["outcome"]["interval"]
        number = Number(line["outcome"]["accuracy"], (high - low) / 2, _size(line))
        accuracies[line["conditions"]["attack"]] = number
    return accuracies


def curve(run: Run) -> list[dict[str, float]]:
    """Returns epoch, natural, pgd10 and their sum of each validation, as fractions."""
    points = []
    for line in run.metrics:
        if line.get("validation_robust") is not None:
            natural, robust = line["validation_natural"], line["validation_robust"]
            sums = {"natural": natural, "pgd10": robust, "natural+pgd10": natural + robust}
            points.append({"epoch": line["epoch"], **sums})
    return points


def _of_validation(run: Run) -> dict[str, Number]:
    """Returns the accuracies of the validation with the highest sum."""
    best = max(curve(run), key=lambda point: point["natural+pgd10"], default=None)
    if best is None:
        return {}
    on_test = run.config["selection"] == "test"
    size = source(run.config["dataset"]).num_test if on_test else int(run.config["num_validation"])
    return {name: _number(best[name], size) for name in ("natural", "pgd10")}


def _number(share: float, size: int) -> Number:
    low, high = wilson(round(share * size), size)
    return Number(share, (high - low) / 2, size)


def _of_masks(run: Run) -> dict[str, Number]:
    try:
        with np.load(RunFolder(run.workdir).masks_file) as archive:
            size = int(archive["num_examples"])
            means = {place: float(archive[place]) for place in ("digit", "background")}
    except Exception:  # Because a damaged archive can raise almost anything.
        return {}
    return {f"mask_{place}": Number(mean, None, size) for place, mean in means.items()}
