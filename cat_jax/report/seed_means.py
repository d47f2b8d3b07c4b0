"""Accuracies averaged over runs whose training differs in the seed alone."""

import json
import pathlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cat_jax.experiment import labels, settings
from cat_jax.experiment.fields import FIELDS, TRAINING
from cat_jax.report import tables
from cat_jax.report.grids import Grid
from cat_jax.storage import lines
from cat_jax.storage.run_folder import RunFolder

CAPTION = (
    "Mean ± standard deviation of accuracies in percent, over runs that differ in the seed alone; "
    "- where a seed has no number."
)

Conditions = dict[str, Mapping[str, Any]]  # By tables.condition_key.
Source = tuple[str, str]  # Checkpoint and images.


def seed_grids(workdirs: Sequence[pathlib.Path]) -> list[Grid]:
    """One table with a row for each group of runs, checkpoint and set of images.

    Args:
      workdirs: folders of runs.

    Returns:
      The table; none if no two runs differ in the seed alone.
    """
    conditions: Conditions = {}
    rows = []
    for group in _groups(workdirs):
        first, seeds = next(iter(group.values())).name, ", ".join(map(str, group))
        for source, numbers in _numbers(group.values(), conditions).items():
            complete = {
                k: [*found.values()] for k, found in numbers.items() if len(found) == len(group)
            }
            rows.append(([first, seeds, *source], complete))
    if not rows:
        return []
    heads = labels.attacks(list(conditions.values()))
    body = [[*names, *(_cell(found.get(key)) for key in conditions)] for names, found in rows]
    return [Grid("seeds", CAPTION, ["first run", "seeds", "checkpoint", "images", *heads], body)]


def _groups(workdirs: Sequence[pathlib.Path]) -> list[dict[int, pathlib.Path]]:
    """Several runs by seed, for each training that is equal but for the seed."""
    groups: dict[str, dict[int, pathlib.Path]] = {}
    for workdir in workdirs:
        folder = RunFolder(workdir)
        if config := folder.config():
            training = json.dumps(
                [_training(config), folder.data_fingerprint()], sort_keys=True, allow_nan=False
            )
            groups.setdefault(training, {}).setdefault(config["seed"], workdir)
    return [group for group in groups.values() if len(group) > 1]


def _training(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that affect training, without the seed; also those of other versions."""
    return {
        path: value
        for path, value in settings.flat(config).items()
        if path != "seed" and (path not in FIELDS or FIELDS[path].affects & TRAINING)
    }


def _numbers(
    group: Iterable[pathlib.Path], conditions: Conditions
) -> dict[Source, dict[str, dict[pathlib.Path, float]]]:
    """The newest accuracy of each run by condition_key; adds to `conditions` those of attacks."""
    numbers: dict[Source, dict[str, dict[pathlib.Path, float]]] = {}
    for workdir in group:
        for line in tables.read(workdir, "results"):
            if lines.is_in_tables(line) and line["attacked"]["file"] is None:
                key = tables.condition_key(line)
                conditions.setdefault(key, line["conditions"])
                source = line["attacked"]["checkpoint"], labels.images(line["conditions"])
                of_attack = numbers.setdefault(source, {}).setdefault(key, {})
                of_attack[workdir] = line["outcome"]["accuracy"]
    return numbers


def _cell(accuracies: Sequence[float] | None) -> str:
    if accuracies is None:
        return tables.DASH
    percent = [100 * accuracy for accuracy in accuracies]
    return f"{statistics.fmean(percent):.1f} ± {statistics.stdev(percent):.1f}"
