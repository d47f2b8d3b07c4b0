"""The commands that train and attack what a table prints, whole or a share of it."""

import math
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from cat_jax.experiment.fields import FIELDS
from cat_jax.experiment.limits import EPOCHS
from cat_jax.paper.rows import Row, source

MIN_TEST = 100  # Images of a scaled test.


def overrides(row: Row, scale: float = 1.0) -> dict[str, Any]:
    """The fields that the row sets besides its variant; below scale 1 those of a shorter run too.

    A shorter run has less training and fewer test images. The epochs at which rates drop, and at
    which FAT's tau grows, keep their place in the training.

    Args:
      row: of a table.
      scale: share of the training's length, in (0, 1].
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
    shorter["test.num_examples"] = max(MIN_TEST, round(scale * source(config["dataset"]).num_test))
    return dict(row.overrides) | shorter


def length(row: Row, scale: float) -> tuple[int, int]:
    """num_epochs and num_steps of the row at this scale.

    Where less than one epoch is left, num_steps is not 0: each network then sees only so many of
    the training images.
    """
    config = row.config()
    scaled = scale * config["num_epochs"]
    if scaled >= 1 or scale == 1:
        return round(scaled), config["num_steps"]
    return 1, max(1, round(scale * row.total_steps(config)))


def shortened(epochs: Iterable[int], share: float) -> tuple[int, ...]:
    """Epochs of a schedule in a shorter run: from 1 on, no two equal, since those count once."""
    places: list[int] = []
    for epoch in epochs:
        places.append(max(places[-1] + 1 if places else 1, math.floor(share * epoch)))
    return tuple(places)


def workdir(row: Row, seed: int, scale: float = 1.0) -> str:
    """A name made of all that the row sets, for people: a run is recognised by its config."""
    parts = [row.file, row.variant]
    for path, value in row.overrides.items():
        parts += [path.rpartition(".")[2], str(value)]
    parts += [f"scale_{scale:g}"] if scale != 1 else []
    return re.sub(r"[^A-Za-z0-9_.-]", "-", "_".join([*parts, f"seed{seed}"]))


def command(row: Row, seed: int, folder: str, scale: float = 1.0, flags: Sequence[str] = ()) -> str:
    """One line for a shell: it trains or resumes, and then attacks."""
    words = ["python", "-m", "cat_jax.main", f"--config=cat_jax:{row.file}:{row.variant}"]
    words.append(f"--workdir={folder.rstrip('/')}/{workdir(row, seed, scale)}")
    words.append(f"--config.seed={seed}")
    for path, value in overrides(row, scale).items():
        words.append(f"--config.{path}={_text(value)}")
    return shlex.join([*words, *flags])


def _text(value: Any) -> str:
    """As the flag takes it; a tuple of one keeps its comma."""
    return str(value).replace(" ", "") if isinstance(value, tuple) else str(value)
