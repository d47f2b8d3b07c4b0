"""Accuracy on other images of a split: those of transfer, and corrupted ones."""

import dataclasses
import functools
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from cat_jax import data
from cat_jax.attacks.named import NamedAttack
from cat_jax.evaluation import results
from cat_jax.evaluation.evaluator import Evaluator
from cat_jax.evaluation.results import Place, Result
from cat_jax.runtime import processes
from cat_jax.storage import lines
from cat_jax.types import PyTree


def on_other_images(
    evaluator: Evaluator,
    variables: PyTree,
    conditions: Mapping[str, Any],
    split: data.Split,
    indices: np.ndarray,
    place: Place,
    make_images: Callable[[], np.ndarray],
) -> Result:
    """Evaluates a classifier on images in place of those of a split.

    Args:
      evaluator, variables: the classifier.
      conditions: conditions of the result; "attack" is its name.
      split, indices: labels, and indices in the data set.
      place: files of the result, whose key has these conditions.
      make_images: () -> [N, H, W, C], uint8 or floats; not called if the result is complete.
    """
    blank = results.unknown(split.labels, indices)
    record = processes.from_first(lambda: results.read(place, blank))
    if np.any(record.flags == results.UNKNOWN):
        split = split._replace(images=make_images())
    unchanged = NamedAttack(conditions["attack"], None)
    result = evaluator(variables, unchanged, split, indices=indices, place=place)
    return dataclasses.replace(result, conditions=conditions)


def corruptions(
    evaluator: Evaluator,
    variables: PyTree,
    split: data.Split,
    indices: np.ndarray,
    seed: int,
    place_of: Callable[[Mapping[str, Any]], Place],
) -> Iterator[Result]:
    """The results of every kind of corruption at every severity.

    Noise depends on the seed, the kind, the severity and the index of an image.

    Args:
      evaluator, variables, split, indices: as for `on_other_images`.
      seed: integer of 0 or more.
      place_of: conditions -> files of the result.
    """
    channels = split.images.shape[-1]
    for kind in data.KINDS:
        if kind == data.JPEG and channels not in (1, 3):
            continue
        for severity in data.SEVERITIES:
            conditions = {"attack": lines.CORRUPTION, "kind": kind, "severity": severity}
            conditions["source_of_images"] = "cat_jax, not CIFAR-10-C"
            key = jax.random.fold_in(jax.random.key(seed), zlib.crc32(f"{kind}{severity}".encode()))
            make_images = functools.partial(_corrupted, split.images, kind, severity, key, indices)
            arguments = (conditions, split, indices, place_of(conditions), make_images)
            yield on_other_images(evaluator, variables, *arguments)


def _corrupted(
    images: np.ndarray, kind: str, severity: int, key: Any, indices: np.ndarray
) -> np.ndarray:
    keys = jax.vmap(functools.partial(jax.random.fold_in, key))(indices)
    return data.corrupt(images, kind, severity, keys)
