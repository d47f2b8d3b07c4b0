"""The result of an attack, image by image, in memory and on disk."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cat_jax.attacks.named import NamedAttack
from cat_jax.intervals import wilson
from cat_jax.storage import files

UNKNOWN = -1


class Record(NamedTuple):
    """An evaluation in progress, as in its file.

    Attributes:
      flags: int8 [N], 1 if the classifier is still correct, 0 if not, UNKNOWN before the attack.
      queries: int32 [N], forward passes of the attack on each image; 0: not attacked.
      distances: float64 [N], how far the attack moved each image, in its norm; 0: not attacked.
      stored: bool [N], whether the file of adversarial images contains this one.
      labels, indices: int32 [N], labels of the images and their indices in the test split.
      seconds: time of the attack, over all sessions.
      excess: how far the worst image violates the rules, in float64; not above 0: it keeps them.
      origin: date, device and versions of the measurement, as `provenance.measurement` returns.
    """

    flags: np.ndarray
    queries: np.ndarray
    distances: np.ndarray
    stored: np.ndarray
    labels: np.ndarray
    indices: np.ndarray
    seconds: float
    excess: float
    origin: Mapping[str, Any]

    def result(
        self, attack: str, conditions: Mapping[str, Any], adversarial: np.ndarray | None = None
    ) -> "Result":
        """The result of a complete record."""
        arrays = (self.flags == 1, self.queries, self.distances, adversarial)
        return Result(attack, conditions, *arrays, self.seconds, self.excess, self.origin)


class Place(NamedTuple):
    """The files of one evaluation.

    Attributes:
      record: .npz file with flags, written after each batch.
      key: key of the line of results. A record with another key is not used.
      images: .npy file of adversarial images, if the evaluation keeps them.
      config: fingerprint of the resolved config, which is in evaluation/FINGERPRINT.json.
    """

    record: pathlib.Path
    key: str
    images: pathlib.Path | None = None
    config: str = ""


def unknown(labels: np.ndarray, indices: np.ndarray) -> Record:
    """The record before the first batch."""
    num_images = len(labels)
    return Record(
        flags=np.full(num_images, UNKNOWN, np.int8),
        queries=np.zeros(num_images, np.int32),
        distances=np.zeros(num_images),
        stored=np.zeros(num_images, bool),
        labels=np.asarray(labels, np.int32),
        indices=np.asarray(indices, np.int32),
        seconds=0.0,
        excess=-math.inf,
        origin={},
    )


def read(place: Place | None, blank: Record, *, images_lost: bool = False) -> Record:
    """The record on disk, if it has the same key and images; otherwise `blank`.

    For a damaged file it returns `blank`, so that the attack runs again. With `images_lost`, the
    adversarial images are computed again.
    """
    if place is None:
        return blank
    try:
        with open(place.record, "rb") as stream, np.load(stream) as archive:
            fields: dict[str, Any] = {name: archive[name] for name in Record._fields[:6]}
            fields |= {name: float(archive[name]) for name in ("seconds", "excess")}
            origin, key = json.loads(str(archive["origin"])), str(archive["key"])
    except Exception:  # Because a damaged archive can raise almost any error.
        return blank
    record = Record(**fields, origin=origin)
    is_same = all(a.shape == b.shape for a, b in zip(record[:6], blank[:6], strict=True))
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
    """The result of one attack.

    Attributes:
      attack: name of the attack.
      conditions: arguments of the attack, as `NamedAttack.conditions` returns them.
      flags: bool [N], True where the classifier is still correct.
      queries: int32 [N], forward passes of the attack on each image; 0: not attacked.
      distances: float64 [N], how far the attack moved each image, in its norm.
      adversarial: [N, H, W, C], float32 or uint8, if the caller keeps images, else None; images
        that were not attacked are those of the previous attack.
      seconds: time of the attack, compilation included.
      excess: as in `Record`; -inf if nothing was attacked.
      origin: as in `Record`.
    """

    attack: str
    conditions: Mapping[str, Any]
    flags: np.ndarray
    queries: np.ndarray
    distances: np.ndarray
    adversarial: np.ndarray | None
    seconds: float
    excess: float
    origin: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """The fraction of all images that is still classified correctly."""
        return float(self.flags.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """95% Wilson interval of the accuracy."""
        return wilson(int(self.flags.sum()), len(self.flags))

    @property
    def num_attacked(self) -> int:
        """Number of attacked images; in a cascade, of those that survived the previous attack."""
        return int(np.count_nonzero(self.queries))

    @property
    def mean_queries(self) -> float:
        """Mean number of forward passes on an attacked image; 0 without attacked images."""
        return float(self.queries.sum()) / max(self.num_attacked, 1)


def before(named: NamedAttack, results: Mapping[str, Result]) -> Result | None:
    """The result whose survivors an attack attacks; None if it attacks all images.

    Args:
      named: the attack.
      results: earlier results, by the names of their attacks.
    """
    if named.worst_of:
        return _worst_case([results[member.name] for member in named.worst_of])
    return results[named.after.name] if named.after else None


def _worst_case(members: Sequence[Result]) -> Result:
    """The result of several attacks on the same images: an image survives if it survives all.

    Its adversarial image, if the results have them, is that of the first attack that fools.
    """
    first, *others = members
    flags, adversarial = first.flags, first.adversarial
    for other in others:
        if adversarial is not None and other.adversarial is not None:
            chosen = flags.reshape(-1, *(1,) * (adversarial.ndim - 1))
            adversarial = np.where(chosen, other.adversarial, adversarial)
        flags = flags & other.flags
    return dataclasses.replace(first, flags=flags, adversarial=adversarial)
