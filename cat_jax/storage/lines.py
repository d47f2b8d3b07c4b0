"""Lines of results.jsonl and checks.jsonl: what was attacked, the conditions, and the outcome.

The first two parts are the key of a line.
"""

import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from cat_jax.storage import files

Line = Mapping[str, Any]
PARTS = ("attacked", "conditions", "outcome")
# Attacks of accuracy against epsilon, whose lines tables do not show.
CURVE, MARKS = "curve_fmn", "curve_apgd"
CURVES = (CURVE, MARKS, "curve")  # The last is PGD, of an earlier version, and is not drawn.
CORRUPTION = "corruption"  # Attack of the lines of corrupted images.


def is_curve(line: Line) -> bool:
    """Whether a line of results.jsonl is a point of accuracy against epsilon."""
    return line["conditions"]["attack"] in CURVES


def is_transfer(line: Line) -> bool:
    """Whether a line of results.jsonl is of images that an attack found on other classifiers."""
    return "source" in line["conditions"]


def is_corruption(line: Line) -> bool:
    """Whether a line of results.jsonl is of corrupted images."""
    return bool(line["conditions"]["attack"] == CORRUPTION)


def is_in_tables(line: Line) -> bool:
    """Whether tables of attacks show a line; the three kinds above have their own places."""
    return not (is_curve(line) or is_transfer(line) or is_corruption(line))


def key(line: Line) -> str:
    """The first two parts as one text, which is equal for equal evaluations."""
    return json.dumps([line["attacked"], line["conditions"]], sort_keys=True, allow_nan=False)


def record_key(line: Line) -> str:
    """`key` without the name of the checkpoint, because best/ and last/ may be the same weights."""
    attacked = {name: value for name, value in line["attacked"].items() if name != "checkpoint"}
    return key({"attacked": attacked, "conditions": line["conditions"]})


def record_stem(line: Line) -> str:
    """The name of a line's record in evaluation/ without .npz, such as step607_pgd20_1a2b3c4d."""
    attacked, attack = line["attacked"], line["conditions"]["attack"]
    if attacked["step"] is None:
        start = f"weights-{attacked['weights'][:12]}"
    else:
        average = str(attacked["checkpoint"]).endswith("_average")
        start = f"step{attacked['step']}{'_average' if average else ''}"
    digest = hashlib.sha256(record_key(line).encode()).hexdigest()
    return f"{start}_{attack}_{digest[:8]}"


def replace(file: pathlib.Path, records: Sequence[Line]) -> None:
    """Adds lines to a file; each replaces the line with its key, if there is one.

    It does not write a file that would not change.
    """
    old = files.read_json_lines(file)
    new = {key(line): dict(line) for line in records}
    replaced = [new.pop(key(line), line) for line in old]
    if (lines := [*replaced, *new.values()]) != old:
        files.write_json_lines(file, lines)


def newest(records: Sequence[Line]) -> list[Line]:
    """The lines of the newest weights of each checkpoint; all lines of weights from a file.

    The newest weights are those of the last step. If a training that started again has other
    weights at that step, the last line decides.
    """
    latest: dict[str, tuple[int, str]] = {}
    for line in records:
        attacked = line["attacked"]
        if (step := attacked["step"]) is not None:
            name, version = attacked["checkpoint"], (step, attacked["weights"])
            latest[name] = version if step >= latest.get(name, version)[0] else latest[name]
    return [line for line in records if _is_newest(line["attacked"], latest)]


def _is_newest(attacked: Line, latest: Mapping[str, tuple[int, str]]) -> bool:
    version = (attacked["step"], attacked["weights"])
    return attacked["step"] is None or latest[attacked["checkpoint"]] == version


def first_non_finite(metrics: Sequence[Line]) -> str:
    """ "mask_loss is nan at step 300", the first such number; "" if all are finite."""
    for line in metrics:
        for name, value in line.get(files.NON_FINITE, {}).items():
            return f"{name} is {value} at step {line['step']}"
    return ""
