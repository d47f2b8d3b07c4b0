"""Accuracy under attack: one flag per example and attack, kept on disk, averaged once."""

import dataclasses
import functools
import math
import pathlib
import time
import zipfile
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import Partial

from cat_jax import files
from cat_jax.data import Split, padded_batches, to_unit
from cat_jax.types import DEVICES, Array, PyTree

UNKNOWN = -1
SLACK = 1e-6  # x + epsilon - x exceeds epsilon by up to 3e-8 in float32.


class NamedAttack(NamedTuple):
    """An attack as a table names it.

    Attributes:
      name: such as "pgd20".
      attack: (logits_fn, images, labels, keys) -> images; None for natural accuracy.
      epsilon: radius that it must keep.
      clipped: must its images stay in [0, 1]?
      after: name of the attack before it in a cascade: it is only run on the examples that are
        still right after that one, and its own flags are then those of both.
    """

    name: str
    attack: Callable[..., Array] | None
    epsilon: float = 0.0
    clipped: bool = True
    after: str = ""


@dataclasses.dataclass(frozen=True)
class Result:
    """What one attack left: flags [N], True where the classifier is still right."""

    attack: str
    flags: np.ndarray
    seconds: float

    @property
    def accuracy(self) -> float:
        """The part of all examples that is still classified right."""
        return float(self.flags.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """95% Wilson interval of the accuracy."""
        return wilson(int(self.flags.sum()), len(self.flags))


def wilson(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson score interval of a proportion; (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    p, spread = successes / trials, z * z / trials
    centre = (p + spread / 2) / (1 + spread)
    half = z * math.sqrt(p * (1 - p) / trials + spread / (4 * trials)) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)


class Evaluator:
    """A classifier's accuracies; each attack is compiled once and serves every checkpoint.

    Noise belongs to (seed, attack, index in the data set): flags depend neither on the batch
    size nor on the number of devices.
    """

    def __init__(
        self,
        classifier: nn.Module,
        seed: int,
        batch_size: int,
        devices: Sequence[jax.Device],
    ) -> None:
        self._classifier = classifier
        self._seed = seed
        self._batch_size = math.ceil(batch_size / len(devices)) * len(devices)
        mesh = Mesh(np.array(devices), (DEVICES,))
        self._split = NamedSharding(mesh, PartitionSpec(DEVICES))
        self._whole = NamedSharding(mesh, PartitionSpec())
        self._compiled: dict[str, Callable[..., Any]] = {}

    def __call__(
        self,
        variables: PyTree,
        named: NamedAttack,
        split: Split,
        *,
        still_right: np.ndarray | None = None,
        file: pathlib.Path | None = None,
        identity: str = "",
        on_batch: Callable[[int], object] = lambda count: None,
    ) -> Result:
        """Attacks every example of `split` once.

        Args:
          variables: the classifier's parameters and running statistics.
          named: the attack.
          split: the examples.
          still_right: bool [N], those to attack; the others are wrong already. None: all.
          file: where flags are kept after each batch; a later call with the same `identity`
            goes on from there.
          identity: says what the flags are of: weights, attack and data.
          on_batch: told how many examples are known after each batch.

        Raises:
          RuntimeError: if the attack leaves its ball or the pixel range.
        """
        started = time.monotonic()
        flags, spent = _read_flags(file, identity, len(split.labels))
        variables = jax.device_put(variables, self._whole)
        attack = self._compile(named)
        key = jax.random.fold_in(jax.random.key(self._seed), zlib.crc32(named.name.encode()))
        if still_right is not None:
            flags[~still_right] = 0
        unknown = np.flatnonzero(flags == UNKNOWN)
        if len(unknown) < len(flags):
            on_batch(len(flags) - len(unknown))
        for places, count in padded_batches(len(unknown), self._batch_size):
            indices = unknown[places]  # Full batches of one shape, whatever is left to do.
            arguments = jax.device_put(
                (split.images[indices], split.labels[indices], indices), self._split
            )
            right, excess = jax.device_get(attack(variables, key, *arguments))
            if not excess <= SLACK:
                raise RuntimeError(
                    f"{named.name} left its ball or the pixel range by {excess:.2e}; "
                    f"expected at most {SLACK:.0e}: its numbers would mean nothing."
                )
            flags[indices[:count]] = right[:count]
            _write_flags(file, identity, flags, spent + time.monotonic() - started)
            on_batch(int((flags != UNKNOWN).sum()))
        return Result(named.name, flags == 1, spent + time.monotonic() - started)

    def _compile(self, named: NamedAttack) -> Callable[..., Any]:
        if named.name not in self._compiled:
            self._compiled[named.name] = jax.jit(
                functools.partial(attack_batch, self._classifier, named)
            )
        return self._compiled[named.name]


def attack_batch(
    classifier: nn.Module,
    named: NamedAttack,
    variables: PyTree,
    key: Array,
    images: Array,
    labels: Array,
    indices: Array,
) -> tuple[Array, Array]:
    """Which examples are still right, [B], and by how much the attack broke its rules.

    At full float32 precision: matrix units would otherwise round to fewer bits.
    """
    with jax.default_matmul_precision("highest"):
        logits_fn = Partial(classifier.apply, variables)
        natural = to_unit(images)
        if named.attack is None:
            found = natural
        else:
            keys = jax.vmap(functools.partial(jax.random.fold_in, key))(indices)
            found = named.attack(logits_fn, natural, labels, keys)
        excess = jnp.max(jnp.abs(found - natural)) - named.epsilon
        if named.clipped:
            outside = jnp.maximum(-jnp.min(found), jnp.max(found) - 1.0)
            excess = jnp.maximum(excess, outside)
        return jnp.argmax(logits_fn(found), axis=-1) == labels, excess


def _read_flags(
    file: pathlib.Path | None, identity: str, num_examples: int
) -> tuple[np.ndarray, float]:
    """Flags int8 [N] and the seconds they took; UNKNOWN where nothing fitting is on disk."""
    unknown = np.full(num_examples, UNKNOWN, np.int8)
    if file is None or not file.exists():
        return unknown, 0.0
    try:
        with open(file, "rb") as stream, np.load(stream) as kept:
            if str(kept["identity"]) == identity and kept["flags"].shape == unknown.shape:
                return kept["flags"], float(kept["seconds"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        pass  # A damaged file is no reason to stop: its flags are computed again.
    return unknown, 0.0


def _write_flags(
    file: pathlib.Path | None, identity: str, flags: np.ndarray, seconds: float
) -> None:
    if file is not None:
        with files.replacing(file) as temporary, open(temporary, "wb") as stream:
            np.savez(stream, flags=flags, identity=identity, seconds=seconds)
