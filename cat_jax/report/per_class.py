"""Natural and robust accuracy of each class, from the flags of an evaluation."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cat_jax.experiment import labels
from cat_jax.intervals import wilson
from cat_jax.storage import lines
from cat_jax.storage.lines import Line
from cat_jax.storage.run_folder import RunFolder

MAX_CLASSES = 20  # With more, only those with the lowest robust accuracy are shown.


class Row(NamedTuple):
    """Accuracies of one class, as fractions."""

    name: str
    num_images: int
    natural: float
    robust: float


class PerClass(NamedTuple):
    """Accuracies by class, and one sentence on how they were measured."""

    rows: list[Row]
    caption: str


def strongest(results: Sequence[Line]) -> tuple[Line, Line] | None:
    """The lines of natural accuracy and of the attack with the lowest accuracy.

    Both are of best/ if it was evaluated, in the ball of the first attack in results.jsonl: a later
    evaluation at a larger radius would always look stronger. Attacks that are not clipped to [0, 1]
    do not count. Of several sets of images AutoAttack's is chosen, otherwise the largest.
    """
    weights = dict.fromkeys(line["attacked"]["weights"] for line in results)
    for digest in weights:
        own = [line for line in results if line["attacked"]["weights"] == digest]
        own = [line for line in own if lines.is_in_tables(line)]
        attacks = [line for line in own if line["conditions"].get("clipped")]
        attacks = [line for line in attacks if _ball(line) == _ball(attacks[0])]
        sets = [
            (natural, same_images)
            for natural in own
            if natural["conditions"]["attack"] == "natural"
            and (same_images := [line for line in attacks if _images(line) == _images(natural)])
        ]
        if sets:
            natural, attacks = max(sets, key=lambda pair: _evidence(*pair))
            return natural, min(attacks, key=_accuracy)
    return None


def _evidence(natural: Line, attacks: Sequence[Line]) -> tuple[bool, int]:
    is_autoattack = any(line["conditions"]["attack"] == "standard" for line in attacks)
    return is_autoattack, int(natural["conditions"]["num_examples"])


def _images(line: Line) -> str:
    return labels.images(line["conditions"])


def _ball(line: Line) -> tuple[str, float]:
    return line["conditions"]["norm"], line["conditions"]["epsilon"]


def _accuracy(line: Line) -> float:
    return float(line["outcome"]["accuracy"])


def per_class(workdir: pathlib.Path, results: Sequence[Line]) -> PerClass | None:
    """Accuracies by class under the strongest attack; None without the flags of both."""
    pair = strongest(results)
    records = [_read(workdir, line) for line in pair] if pair else []
    if not pair or any(record is None for record in records):
        return None
    (flags, classes), (robust_flags, _) = [record for record in records if record is not None]
    names, rows = _class_names(workdir), []
    for label in np.unique(classes):
        chosen = classes == label
        name = names[label] if label < len(names) else str(label)
        accuracies = (float(f[chosen].mean()) for f in (flags, robust_flags))
        rows.append(Row(name, int(chosen.sum()), *accuracies))
    halves = [_half_interval(row) for row in rows]
    caption = f"Natural accuracy, and accuracy under {labels.attack(pair[1]['conditions'])}. "
    low, high = (choose(rows, key=lambda row: row.robust) for choose in (min, max))
    caption += f"Under attack: {_share(low)} to {_share(high)}. "
    caption += f"95% intervals reach up to {100 * max(halves):.0f} points to each side."
    if len(rows) > MAX_CLASSES:
        rows = sorted(rows, key=lambda row: row.robust)[:MAX_CLASSES]
        caption += f" The {MAX_CLASSES} classes with the lowest robust accuracy."
    return PerClass(rows, caption)


def _share(row: Row) -> str:
    """ "21.0% of cat"."""
    return f"{100 * row.robust:.1f}% of {row.name}"


def _half_interval(row: Row) -> float:
    low, high = wilson(round(row.robust * row.num_images), row.num_images)
    return (high - low) / 2


def _read(workdir: pathlib.Path, line: Line) -> tuple[np.ndarray, np.ndarray] | None:
    """(flags, labels) of the record of a line; None if it is absent, damaged or unfinished."""
    try:
        with np.load(RunFolder(workdir).record_file(lines.record_stem(line))) as record:
            flags, classes = record["flags"], record["labels"]
    except Exception:  # np.load raises many types of errors for damaged archives.
        return None
    return (flags == 1, classes) if len(flags) == len(classes) and np.all(flags >= 0) else None


def _class_names(workdir: pathlib.Path) -> Sequence[str]:
    """The names of the classes that a checkpoint of the run states; none without a checkpoint."""
    for file in sorted(RunFolder(workdir).checkpoints.glob("*/*/manifest.json")):
        try:
            meta: Mapping[str, list[str]] = json.loads(file.read_text())["meta"]
            return meta["class_names"]
        except (OSError, ValueError, KeyError):
            continue
    return ()
