"""Lines of results.jsonl and checks.jsonl: what was attacked, the conditions, and the outcome.

The first two parts are a line's key. Lines that an earlier version wrote have no parts; nothing
says what they were measured under, and what reads results leaves them out.
"""

import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from cat_jax.storage import files

Line = Mapping[str, Any]
PARTS = ("attacked", "conditions", "outcome")
CURVE = "curve"  # The attack of the points of accuracy against epsilon: a figure, not a column.


def has_conditions(line: Line) -> bool:
    """Whether a line has all three parts."""
    return all(isinstance(line.get(part), dict) for part in PARTS)


def with_conditions(records: Sequence[Line]) -> list[Line]:
    """The lines that state their conditions."""
    return [line for line in records if has_conditions(line)]


def is_curve(line: Line) -> bool:
    """Whether a line of results.jsonl is a point of accuracy against epsilon."""
    return bool(line["conditions"]["attack"] == CURVE)


def without_conditions(name: str, records: Sequence[Line]) -> str:
    """One sentence on the lines that do not state their conditions; "" if all do."""
    count = len(records) - len(with_conditions(records))
    if not count:
        return ""
    return (
        f"{name} has lines of an earlier version ({count}) that do not state their conditions; "
        "they are left out: evaluate again."
    )


def key(line: Line) -> str:
    """What was attacked and under which conditions, as one text: equal for equal evaluations."""
    return json.dumps([line["attacked"], line["conditions"]], sort_keys=True, allow_nan=False)


def record_key(line: Line) -> str:
    """`key` without the checkpoint's name: best/ and last/ may be the same weights."""
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
    """Adds lines to a file; each takes the place of the line with its key, if there is one.

    A file that would not change is not written.
    """
    old = files.read_json_lines(file)
    new = {key(line): dict(line) for line in records}
    kept = [new.pop(key(line), line) if has_conditions(line) else line for line in old]
    if (lines := [*kept, *new.values()]) != old:
        files.write_json_lines(file, lines)


def newest(records: Sequence[Line]) -> list[Line]:
    """The lines of the newest weights of each checkpoint; all lines of weights from a file.

    The newest are those of the last step; of several, as after a training that began anew, those
    of the last line.
    """
    latest: dict[str, tuple[int, str]] = {}
    for line in records:
        attacked = line["attacked"]
        if (step := attacked["step"]) is not None:
            name, own = attacked["checkpoint"], (step, attacked["weights"])
            latest[name] = own if step >= latest.get(name, own)[0] else latest[name]
    return [line for line in records if _is_newest(line["attacked"], latest)]


def _is_newest(attacked: Line, latest: Mapping[str, tuple[int, str]]) -> bool:
    own = (attacked["step"], attacked["weights"])
    return attacked["step"] is None or latest[attacked["checkpoint"]] == own
