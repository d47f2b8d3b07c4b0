"""Builds the commands that train and attack the networks of a table, at any scale."""

import math
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from cat_jax.experiment.fields import FIELDS
from cat_jax.experiment.limits import EPOCHS
from cat_jax.paper.rows import Row, source

MIN_TEST_IMAGES = 100  # The minimum of a scaled test.


def overrides(row: Row, scale: float = 1.0) -> dict[str, Any]:
    """Returns the fields that the row sets besides its variant, and below scale 1 the shorter run.

    A shorter run has less training and fewer test images. The epochs at which learning rates drop
    and FAT's tau grows shrink with the training.

    Args:
      row: row of a table.
      scale: share of the epochs and of the test images, in (0, 1].
    """
    if scale == 1:
        return dict(row.overrides)
    config = row.config()
    num_epochs, num_steps = length(row, scale)
    shorter: dict[str, Any] = {"num_epochs": num_epochs}
    shorter |= {"num_steps": num_steps} if num_steps else {}
    share = num_epochs / config["num_epochs"]
    for path, field in FIELDS.items():
        if field.limit is EPOCHS:
            shorter[path] = shortened(config[path], share)
    shorter["test.num_examples"] = max(
        MIN_TEST_IMAGES, round(scale * source(config["dataset"]).num_test)
    )
    return dict(row.overrides) | shorter


def length(row: Row, scale: float) -> tuple[int, int]:
    """Returns num_epochs and num_steps of the row at this scale.

    num_steps is 0 unless less than one epoch remains.
    """
    config = row.config()
    scaled = scale * config["num_epochs"]
    if scaled >= 1 or scale == 1:
        return round(scaled), config["num_steps"]
    return 1, max(1, round(scale * row.total_steps(config)))


def shortened(epochs: Iterable[int], share: float) -> tuple[int, ...]:
    """Returns the epochs of a schedule in a shorter run, from 1 on and all different."""
    places: list[int] = []
    for epoch in epochs:
        places.append(max(places[-1] + 1 if places else 1, math.floor(share * epoch)))
    return tuple(places)


def workdir(row: Row, seed: int, scale: float = 1.0) -> str:
    """Returns a folder name from all fields that the row sets; only people read it."""
    parts = [row.file, row.variant]
    for path, value in row.overrides.items():
        parts += [path.rpartition(".")[2], str(value)]
    parts += [f"scale_{scale:g}"] if scale != 1 else []
    return re.sub(r"[^A-Za-z0-9_.-]", "-", "_".join([*parts, f"seed{seed}"]))


def command(row: Row, seed: int, folder: str, scale: float = 1.0, flags: Sequence[str] = ()) -> str:
    """Returns one line for a shell that trains or resumes a run and then attacks it."""
    words = ["python", "-m", "cat_jax.main", f"--config=cat_jax:{row.file}:{row.variant}"]
    words.append(f"--workdir={folder.rstrip('/')}/{workdir(row, seed, scale)}")
    words.append(f"--config.seed={seed}")
    for path, value in overrides(row, scale).items():
        words.append(f"--config.{path}={_text(value)}")
    return shlex.join([*words, *flags])


def _text(value: Any) -> str:
    """Returns the value as a flag takes it; a tuple of one element keeps its comma."""
    return str(value).replace(" ", "") if isinstance(value, tuple) else str(value)
