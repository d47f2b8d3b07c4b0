"""Accuracy under attack: one flag per image and attack, saved on disk, averaged once."""

import functools
import math
import time
import zlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from cat_jax.attacks.named import NamedAttack
from cat_jax.data import Split, padded_batches
from cat_jax.evaluation import results
from cat_jax.evaluation.attacked_batch import ApplyFn, attack_batch
from cat_jax.evaluation.images import (
    distances_of,
    excess_of,
    open_images,
    to_bytes,
)
from cat_jax.evaluation.results import Place, Record, Result
from cat_jax.evaluation.smaller_radii import within
from cat_jax.evaluation.unfinished import missing_images, skip_fooled
from cat_jax.runtime import activities, processes
from cat_jax.storage import provenance
from cat_jax.types import DEVICES, Array, PyTree


class _Job(NamedTuple):
    """One attack on a split: the compiled function, its radius, and the files of its results."""

    attack: Callable[..., Any]
    epsilon: float | None
    named: NamedAttack
    size: int
    place: Place | None
    keep: str
    on_batch: Callable[[int], object]


class Evaluator:
    """Measures accuracies of a classifier; each attack is compiled once for all checkpoints.

    Its function and arguments identify an attack, not its name. Noise depends on (key, name of
    the attack, index in the data set), so flags depend neither on the batch size nor on the number
    of devices and processes. Batches have one shape; for few images it is halved until they fill
    more than half a batch.
    """

    def __init__(
        self,
        apply: ApplyFn,
        key: Array,
        batch_size: int,
        devices: Sequence[jax.Device],
    ) -> None:
        """Compiles nothing yet.

        Args:
          apply: (variables, images) -> logits, such as `module.apply` of a Flax module.
          key: of all noise, as `jax.random.key(0)` makes it.
          batch_size: images that are attacked at a time, on all devices together.
          devices: that share each batch.
        """
        self._apply, self._key = apply, key
        self._batch_size, self._devices = batch_size, devices
        mesh = Mesh(np.array(devices), (DEVICES,))
        self._split = NamedSharding(mesh, PartitionSpec(DEVICES))
        self._replicated = NamedSharding(mesh, PartitionSpec())
        self._compiled: dict[tuple[Hashable, int], Callable[..., Any]] = {}

    def __call__(
        self,
        variables: PyTree,
        named: NamedAttack,
        split: Split,
        *,
        indices: np.ndarray | None = None,
        before: Result | None = None,
        place: Place | None = None,
        keep: str = "none",
        on_batch: Callable[[int], object] = lambda count: None,
    ) -> Result:
        """Attacks every image of `split` once.

        Args:
          variables: the classifier's parameters and running statistics.
          named: the attack.
          split: the images and labels.
          indices: [N], indices of the images in the data set, if `split` is a part of it.
          before: result of the previous attack of a cascade; the attack skips images that are
            already classified wrongly.
          place: files of the evaluation, written after each batch; a later call resumes from them.
          keep: adversarial images to return: "none", "float32", or "uint8", rounded to the nearest
            8-bit images in the ball. With a `place` they are on disk and not in memory.
          on_batch: function of the number of finished images, called when the attack is compiled,
            with each batch, and at the end.

        Raises:
          RuntimeError: if the attack leaves its ball or the pixel range.
          UsageError: if the attack has no radius.
        """
        size = self._size(len(split.labels) if before is None else int(before.flags.sum()))
        job = _Job(self._compile(named), None, named, size, place, keep, on_batch)
        return self._run(job, variables, split, indices, before)

    def curve(
        self,
        variables: PyTree,
        named: NamedAttack,
        split: Split,
        epsilons: Iterable[float],
        *,
        indices: np.ndarray | None = None,
        places: Mapping[float, Place] | None = None,
        on_batch: Callable[[int], object] = lambda count: None,
    ) -> dict[float, Result]:
        """Results at several radii, from the smallest to the largest, with one compilation.

        The step size of the attack keeps its ratio to the radius. Each radius attacks the images
        that survived the smaller ones, because its ball contains theirs: accuracies never rise.
        An attack that minimises the distance, `fmn` or `ddn`, runs once, at the largest radius.
        The time of the run is that of the result there.

        Args:
          variables, split, indices: as for a call.
          named: the attack, at any radius above 0; its function must accept a traced radius.
          epsilons: the radii.
          places: files of the evaluation at each radius.
          on_batch: as for a call; counts the images of all radii together.
        """
        if named.is_minimum_norm:
            *smaller, largest = named.along(epsilons)
            places = places or {}
            arguments: dict[str, Any] = dict(indices=indices, on_batch=on_batch)
            radius = largest.conditions["epsilon"]
            farthest = self(variables, largest, split, place=places.get(radius), **arguments)
            blank = results.unknown(split.labels, _all_or(indices, split))
            nearer = (within(farthest, point, blank, places) for point in smaller)
            return {result.conditions["epsilon"]: result for result in (*nearer, farthest)}
        results_at: dict[float, Result] = {}
        attack, size, before = self._compile(named), self._size(self._batch_size), None
        for i, point in enumerate(named.along(epsilons)):
            epsilon = point.conditions["epsilon"]
            place = (places or {}).get(epsilon)
            count = functools.partial(_add, on_batch, i * len(split.labels))
            job = _Job(attack, epsilon, point, size, place, "none", count)
            results_at[epsilon] = before = self._run(job, variables, split, indices, before)
        return results_at

    def _run(
        self,
        job: _Job,
        variables: PyTree,
        split: Split,
        indices: np.ndarray | None,
        before: Result | None,
    ) -> Result:
        started, name, conditions = time.monotonic(), job.named.name, job.named.conditions
        indices = _all_or(indices, split)
        variables = processes.spread(variables, self._replicated)
        key = jax.random.fold_in(self._key, zlib.crc32(name.encode()))
        images = open_images(job.place, split, job.keep)
        is_new = images is not None and images.is_new
        blank = results.unknown(split.labels, indices)
        record = processes.from_first(lambda: results.read(job.place, blank, images_lost=is_new))
        skip_fooled(record, split, before, images)
        seconds_before, missing = record.seconds, missing_images(record, images)
        num_done = len(split.labels) - len(missing)
        for positions, count in padded_batches(len(missing), job.size):
            padded, new = missing[positions], missing[positions][:count]
            batch = split.take(padded)
            arguments = processes.spread((*batch, indices[padded]), self._split)
            with activities.doing(f"attacking with {name}", activities.ATTACK, is_part=True):
                outputs = job.attack(job.epsilon, variables, key, *arguments)
                job.on_batch(num_done)  # The attack is compiled, and the batch is on its way.
                right, queries, adversarial = jax.device_get(outputs)
            excess = excess_of(name, conditions, batch.images, adversarial)
            record.flags[new], record.queries[new] = right[:count], queries[:count]
            record.distances[new] = distances_of(conditions, batch.images, adversarial)[:count]
            if images is not None:
                rounds = job.keep == "uint8"
                stored = to_bytes(adversarial, batch.images, conditions) if rounds else adversarial
                images.put(new, stored[:count])
                record.stored[new] = True
            record = record._replace(
                seconds=seconds_before + time.monotonic() - started,
                excess=max(excess, record.excess),
            )
            record, num_done = self._save(job.place, record), num_done + count
        job.on_batch(num_done)
        if not record.origin:  # No image was left to attack.
            record = self._save(job.place, record)
        return record.result(name, conditions, None if images is None else images.array)

    def _save(self, place: Place | None, record: Record) -> Record:
        """Adds the origin to a record, and writes it if there is a place."""
        origin = self._origin | {"date": provenance.now()}
        record = record._replace(origin=origin | ({"config": place.config} if place else {}))
        if place is not None:
            results.write(place, record)
        return record

    @functools.cached_property
    def _origin(self) -> dict[str, Any]:
        return provenance.measurement(self._devices[0].device_kind)

    def _size(self, num_attacked: int) -> int:
        """The size of batches: halved while one holds all images; a multiple of the devices."""
        size, num_devices = self._batch_size, len(self._devices)
        while size > 1 and (half := math.ceil(size / 2)) >= num_attacked:
            size = half
        return math.ceil(size / num_devices) * num_devices

    def _compile(self, named: NamedAttack) -> Callable[..., Any]:
        """The compiled function of (radius or None, variables, key, images, labels, indices).

        It compiles an attack that reads mutable values, such as a list, at each call.
        """
        identity = named.identity
        compiled = self._compiled.get((identity, named.queries))
        if identity is None or compiled is None:
            attack = functools.partial(attack_batch, self._apply, named)
            compiled = jax.jit(attack, out_shardings=self._replicated)
            if identity is not None:
                self._compiled[identity, named.queries] = compiled
        return compiled


def _all_or(indices: np.ndarray | None, split: Split) -> np.ndarray:
    return np.arange(len(split.labels)) if indices is None else indices


def _add(on_batch: Callable[[int], object], num_before: int, num_done: int) -> None:
    on_batch(num_before + num_done)
