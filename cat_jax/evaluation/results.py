"""What an attack left of a classifier's accuracy: per example, in memory and on disk."""

import dataclasses
import math
import pathlib
from typing import NamedTuple

import numpy as np

from cat_jax.intervals import wilson
from cat_jax.storage import files

UNKNOWN = -1


class Record(NamedTuple):
    """An evaluation that goes on, as its file holds it.

    Attributes:
      flags: int8 [N], 1 where the classifier is still right, 0 where not, UNKNOWN until then.
      queries: int32 [N], forward passes that the attack made on each example; 0: not attacked.
      adversarial: float32 [N, H, W, C], or [0, H, W, C] if images are not kept.
      seconds: that it took, over all sessions.
      excess: by how much the worst image breaks the rules, in float64; below 0: it keeps them.
    """

    flags: np.ndarray
    queries: np.ndarray
    adversarial: np.ndarray
    seconds: float
    excess: float


def unknown(num_examples: int, image_shape: tuple[int, ...], *, keep_images: bool) -> Record:
    """The record before any batch."""
    return Record(
        flags=np.full(num_examples, UNKNOWN, np.int8),
        queries=np.zeros(num_examples, np.int32),
        adversarial=np.zeros((num_examples * keep_images, *image_shape), np.float32),
        seconds=0.0,
        excess=-math.inf,
    )


def read(file: pathlib.Path | None, identity: str, blank: Record) -> Record:
    """The record on disk, if its identity and shapes are those asked for; `blank` otherwise.

    A damaged file is no reason to stop: what it held is computed again.
    """
    if file is None or not file.exists():
        return blank
    try:
        with open(file, "rb") as stream, np.load(stream) as kept:
            if str(kept["identity"]) != identity:
                return blank
            flags, queries, adversarial = (kept[name] for name in Record._fields[:3])
            seconds, excess = (float(kept[name]) for name in Record._fields[3:])
    except Exception:  # There is no end to what a damaged archive can raise.
        return blank
    found = Record(flags, queries, adversarial, seconds, excess)
    same = [array.shape for array in found[:3]] == [array.shape for array in blank[:3]]
    return found if same else blank


def write(file: pathlib.Path | None, identity: str, record: Record) -> None:
    """Writes the record whole; nothing without a file."""
    if file is not None:
        with files.replacing(file) as temporary, open(temporary, "wb") as stream:
            np.savez(stream, identity=identity, **record._asdict())


@dataclasses.dataclass(frozen=True)
class Result:
    """What one attack left.

    Attributes:
      attack: its name.
      flags: bool [N], True where the classifier is still right.
      queries: int32 [N], forward passes of the attack on each example; 0: not attacked.
      adversarial: float32 [N, H, W, C] if they were asked for, of examples that were not
        attacked what the attack before it left; otherwise None.
      seconds: that it took, compilation included.
      excess: as in `Record`; -inf if nothing was attacked.
    """

    attack: str
    flags: np.ndarray
    queries: np.ndarray
    adversarial: np.ndarray | None
    seconds: float
    excess: float

    @property
    def accuracy(self) -> float:
        """The part of all examples that is still classified right."""
        return float(self.flags.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """95% Wilson interval of the accuracy."""
        return wilson(int(self.flags.sum()), len(self.flags))

    @property
    def num_attacked(self) -> int:
        """Examples that were attacked; in a cascade, those that were still right."""
        return int(np.count_nonzero(self.queries))

    @property
    def mean_queries(self) -> float:
        """Forward passes on each example that was attacked; 0 if none was."""
        return float(self.queries.sum()) / max(self.num_attacked, 1)
