"""Accuracy under attack: one flag per example and attack, kept on disk, averaged once."""

import functools
import math
import pathlib
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import Partial

from cat_jax import losses
from cat_jax.attacks.named import NamedAttack
from cat_jax.data import Split, padded_batches, to_unit
from cat_jax.evaluation import results
from cat_jax.evaluation.results import UNKNOWN, Record, Result
from cat_jax.runtime import processes
from cat_jax.types import DEVICES, Array, PyTree

SLACK = 1e-6  # x + epsilon - x exceeds epsilon by up to 3e-8 in float32.


class Evaluator:
    """A classifier's accuracies; each attack is compiled once and serves every checkpoint.

    Noise belongs to (seed, attack, index in the data set): flags depend neither on the batch
    size nor on the number of devices and processes. Batches are of one shape; where an attack has
    fewer examples than half of that, of the half, a quarter and so on.
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
        self._batch_size, self._num_devices = batch_size, len(devices)
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
        indices: np.ndarray | None = None,
        before: Result | None = None,
        file: pathlib.Path | None = None,
        identity: str = "",
        keep_images: bool = False,
        on_batch: Callable[[int], object] = lambda count: None,
    ) -> Result:
        """Attacks every example of `split` once.

        Args:
          variables: the classifier's parameters and running statistics.
          named: the attack.
          split: the examples.
          indices: [N], of the examples in the data set, if `split` is a part of it.
          before: result of the attack before in a cascade: only what is still right is attacked.
          file: where the record is kept after each batch; a later call with the same `identity`
            goes on from there.
          identity: says what the record is of: weights, attack and data.
          keep_images: keep the adversarial images too.
          on_batch: told how many examples are known after each batch.

        Raises:
          RuntimeError: if the attack leaves its ball or the pixel range.
        """
        started = time.monotonic()
        indices = np.arange(len(split.labels)) if indices is None else indices
        variables = processes.spread(variables, self._whole)
        attack = self._compile(named)
        key = jax.random.fold_in(jax.random.key(self._seed), zlib.crc32(named.name.encode()))
        blank = _blank(split, before, keep_images)
        record = processes.from_first(lambda: results.read(file, identity, blank))
        spent = record.seconds
        unknown = np.flatnonzero(record.flags == UNKNOWN)
        if len(unknown) < len(record.flags):
            on_batch(len(record.flags) - len(unknown))
        batch_size = self._size(len(split.labels) if before is None else int(before.flags.sum()))
        for places, count in padded_batches(len(unknown), batch_size):
            chosen = unknown[places]
            batch = split.take(chosen)
            arguments = processes.spread((*batch, indices[chosen]), self._split)
            right, queries, found = jax.device_get(attack(variables, key, *arguments))
            excess = _excess(named, batch.images, found)
            new = chosen[:count]
            record.flags[new], record.queries[new] = right[:count], queries[:count]
            if keep_images:
                record.adversarial[new] = found[:count]
            seconds = spent + time.monotonic() - started
            record = record._replace(seconds=seconds, excess=max(excess, record.excess))
            results.write(file, identity, record)
            on_batch(int((record.flags != UNKNOWN).sum()))
        flags, queries, adversarial, seconds, excess = record
        kept = adversarial if keep_images else None
        return Result(named.name, flags == 1, queries, kept, seconds, excess)

    def _size(self, num_attacked: int) -> int:
        """The size of batches: halved while they hold all, a multiple of the number of devices."""
        size = self._batch_size
        while size > 1 and (half := math.ceil(size / 2)) >= num_attacked:
            size = half
        return math.ceil(size / self._num_devices) * self._num_devices

    def _compile(self, named: NamedAttack) -> Callable[..., Any]:
        if named.name not in self._compiled:
            self._compiled[named.name] = jax.jit(
                functools.partial(attack_batch, self._classifier, named), out_shardings=self._whole
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
) -> tuple[Array, Array, Array]:
    """Which examples are still right, [B], forward passes on each, [B], and the images.

    At full float32 precision: matrix units would otherwise round to fewer bits.
    """
    with jax.default_matmul_precision("highest"):
        logits_fn = Partial(classifier.apply, variables)
        natural = to_unit(images)
        queries = jnp.full(labels.shape, named.queries, jnp.int32)
        if named.attack is None:
            found, queries = natural, jnp.zeros_like(queries)
        else:
            keys = jax.vmap(functools.partial(jax.random.fold_in, key))(indices)
            found = named.attack(logits_fn, natural, labels, keys)
            if isinstance(found, tuple):
                found, queries = found
        return losses.is_right(logits_fn(found), labels), queries, found


def _blank(split: Split, before: Result | None, keep_images: bool) -> Record:
    """The record before any batch: what the attack before has broken is known already."""
    images, labels = split
    record = results.unknown(len(labels), images.shape[1:], keep_images=keep_images)
    if before is not None:
        record.flags[~before.flags] = 0
        if before.adversarial is not None and keep_images:
            record.adversarial[:] = before.adversarial
    return record


def _excess(named: NamedAttack, images: np.ndarray, found: np.ndarray) -> float:
    """By how much the worst of the images `found` breaks the attack's rules, in float64.

    Raises:
      RuntimeError: if that is more than rounding: its accuracy would mean nothing.
    """
    natural = images / np.float64(255) if images.dtype == np.uint8 else images
    candidate = found.astype(np.float64)
    excess = float(np.max(np.abs(candidate - natural))) - named.epsilon
    if named.clipped:
        excess = max(excess, float(-np.min(candidate)), float(np.max(candidate)) - 1.0)
    if not excess <= SLACK:  # So put that NaN is refused.
        raise RuntimeError(
            f"{named.name} left its ball or the pixel range by {excess:.2e}; "
            f"expected at most {SLACK:.0e}: its numbers would mean nothing."
        )
    return excess
