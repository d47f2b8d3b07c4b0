"""The commands that train and attack what a table prints, whole or a share of it."""

import math
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from cat_jax.paper.rows import SIZES, Row

DROPS = ("optimizer.drop_epochs", "mask_optimizer.drop_epochs")
FAT_TAU = (30, 50, 70)  # attack.tau_epochs of configs/default.py.


def overrides(row: Row, scale: float = 1.0) -> dict[str, Any]:
    """What the row sets besides its variant; below scale 1 less training and fewer test images too.

    The epochs at which rates drop, and FAT's tau grows, keep their place in the whole.

    Args:
      row: of a table.
      scale: of the training's length, in (0, 1].
    """
    made = dict(row.overrides)
    if scale == 1:
        return made
    expected = row.expected()
    made["num_epochs"], num_steps = length(row, scale)
    if num_steps:
        made["num_steps"] = num_steps
    drops = _rising(expected["optimizer.drop_epochs"], scale)
    made |= dict.fromkeys(DROPS, drops)
    if row.variant == "fat":
        made["attack.tau_epochs"] = _rising(FAT_TAU, scale)
    made["test.num_examples"] = max(100, round(scale * SIZES[expected["dataset"]][1]))
    return made


def length(row: Row, scale: float) -> tuple[int, int]:
    """num_epochs and num_steps of the row at this scale.

    Steps are counted, and not 0, where less than one epoch is left: then each network sees only so
    many of the training images.
    """
    expected = row.expected()
    scaled = scale * expected["num_epochs"]
    if scaled >= 1 or scale == 1:
        return round(scaled), expected["num_steps"]
    return 1, max(1, round(scale * row.total_steps(expected)))


def _rising(places: Iterable[int], scale: float) -> tuple[int, ...]:
    """Scaled, from 1 on, and no two at one epoch: equal ones would count once."""
    made: list[int] = []
    for place in places:
        made.append(max(made[-1] + 1 if made else 1, math.floor(scale * place)))
    return tuple(made)


def workdir(row: Row, seed: int, scale: float = 1.0) -> str:
    """A name that says all that the row sets; it is for people, runs are known by their configs."""
    parts = [row.config, row.variant]
    for path, value in row.overrides.items():
        parts += [path.rpartition(".")[2], str(value)]
    parts += [f"scale_{scale:g}"] if scale != 1 else []
    return re.sub(r"[^A-Za-z0-9_.-]", "-", "_".join([*parts, f"seed{seed}"]))


def command(row: Row, seed: int, folder: str, scale: float = 1.0, more: Sequence[str] = ()) -> str:
    """One line for a shell: it trains, or goes on, and then attacks."""
    words = ["python", "-m", "cat_jax.main", f"--config=cat_jax:{row.config}:{row.variant}"]
    words.append(f"--workdir={folder.rstrip('/')}/{workdir(row, seed, scale)}")
    words.append(f"--config.seed={seed}")
    for path, value in overrides(row, scale).items():
        words.append(f"--config.{path}={_text(value)}")
    return shlex.join([*words, *more])


def _text(value: Any) -> str:
    """As the flag takes it; a tuple of one keeps its comma."""
    return str(value).replace(" ", "") if isinstance(value, tuple) else str(value)
