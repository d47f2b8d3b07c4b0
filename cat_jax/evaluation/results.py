"""What an attack left of a classifier's accuracy: per image, in memory and on disk."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from cat_jax.intervals import wilson
from cat_jax.storage import files

UNKNOWN = -1


class Record(NamedTuple):
    """An evaluation in progress, as its file holds it.

    Attributes:
      flags: int8 [N], 1 where the classifier is still right, 0 where not, UNKNOWN until then.
      queries: int32 [N], forward passes that the attack made on each image; 0: not attacked.
      stored: bool [N], whether the file of adversarial images has this one.
      labels, indices: int32 [N], of the images, the latter in the test split.
      seconds: time of the attack, over all sessions.
      excess: by how much the worst image breaks the rules, in float64; below 0: it keeps them.
      origin: when and with what it was measured, as `provenance.measurement` returns it.
    """

    flags: np.ndarray
    queries: np.ndarray
    stored: np.ndarray
    labels: np.ndarray
    indices: np.ndarray
    seconds: float
    excess: float
    origin: Mapping[str, Any]


class Place(NamedTuple):
    """The files of one evaluation.

    Attributes:
      record: the .npz with flags, written after each batch.
      key: what was attacked and under which conditions. A record with another key is not used.
      images: the .npy of adversarial images, where they are kept.
      config: fingerprint of the resolved config, which is in evaluation/FINGERPRINT.json.
    """

    record: pathlib.Path
    key: str
    images: pathlib.Path | None = None
    config: str = ""


def unknown(labels: np.ndarray, indices: np.ndarray) -> Record:
    """The record before any batch."""
    num_images = len(labels)
    return Record(
        flags=np.full(num_images, UNKNOWN, np.int8),
        queries=np.zeros(num_images, np.int32),
        stored=np.zeros(num_images, bool),
        labels=np.asarray(labels, np.int32),
        indices=np.asarray(indices, np.int32),
        seconds=0.0,
        excess=-math.inf,
        origin={},
    )


def read(place: Place | None, blank: Record, *, images_lost: bool = False) -> Record:
    """The record on disk, if its key and images are right; otherwise `blank`.

    A damaged file is no reason to stop: what it held is computed again. With `images_lost`, so are
    the adversarial images.
    """
    if place is None:
        return blank
    try:
        with open(place.record, "rb") as stream, np.load(stream) as kept:
            fields: dict[str, Any] = {name: kept[name] for name in Record._fields[:5]}
            fields |= {name: float(kept[name]) for name in ("seconds", "excess")}
            origin, key = json.loads(str(kept["origin"])), str(kept["key"])
    except Exception:  # There is no end to what a damaged archive can raise.
        return blank
    record = Record(**fields, origin=origin)
    is_same = all(a.shape == b.shape for a, b in zip(record[:5], blank[:5], strict=True))
    if key != place.key or not is_same or not np.array_equal(record.indices, blank.indices):
        return blank
    return record._replace(stored=blank.stored) if images_lost else record


def write(place: Place, record: Record) -> None:
    """Replaces the record on disk."""
    fields = record._asdict() | {
        "key": place.key,
        "origin": json.dumps(record.origin, allow_nan=False),
    }
    with files.replacing(place.record) as temporary, open(temporary, "wb") as stream:
        np.savez(stream, **fields)


@dataclasses.dataclass(frozen=True)
class Result:
    """What one attack left.

    Attributes:
      attack: its name.
      conditions: the arguments of the attack, as `NamedAttack.conditions` has them.
      flags: bool [N], True where the classifier is still right.
      queries: int32 [N], forward passes of the attack on each image; 0: not attacked.
      adversarial: [N, H, W, C] if images were asked for, float32 or uint8, of images that were
        not attacked what the attack before left; otherwise None.
      seconds: time of the attack, compilation included.
      excess: as in `Record`; -inf if nothing was attacked.
      origin: as in `Record`.
    """

    attack: str
    conditions: Mapping[str, Any]
    flags: np.ndarray
    queries: np.ndarray
    adversarial: np.ndarray | None
    seconds: float
    excess: float
    origin: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """The fraction of all images that is still classified right."""
        return float(self.flags.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """95% Wilson interval of the accuracy."""
        return wilson(int(self.flags.sum()), len(self.flags))

    @property
    def num_attacked(self) -> int:
        """Images that were attacked; in a cascade, those that were still right."""
        return int(np.count_nonzero(self.queries))

    @property
    def mean_queries(self) -> float:
        """Forward passes on each image that was attacked; 0 if none was."""
        return float(self.queries.sum()) / max(self.num_attacked, 1)
