"""Data sets by name, whole and in memory: uint8 images, int32 labels, a train and a test split.

No TensorFlow is imported, and nothing is downloaded. `digits` comes with
scikit-learn, `synthetic` from a seed, `own` from your files (see `own.py`); the others from folders
prepared once (see `prepare.py`).
"""

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cat_jax.data import own, records
from cat_jax.errors import UsageError

DATA_DIR = "~/tensorflow_datasets"


class Split(NamedTuple):
    """Examples in a fixed order.

    Attributes:
      images: uint8 [N, H, W, C].
      labels: int32 [N], from 0 to K - 1.
    """

    images: np.ndarray
    labels: np.ndarray

    def first(self, num_examples: int) -> "Split":
        """The first so many examples, or all if there are fewer."""
        return Split(self.images[:num_examples], self.labels[:num_examples])

    def take(self, chosen: np.ndarray) -> "Split":
        """The examples at these indices, or where this bool [N] is true."""
        return Split(self.images[chosen], self.labels[chosen])


Loaded = tuple[tuple[str, ...], Split, Split]  # Names of the classes, train, test.


class Spec(NamedTuple):
    """What networks and schedules need to know of a data set.

    Attributes:
      image_shape: (H, W, C).
      num_classes: K.
      num_train: examples of the training split, validation included.
    """

    image_shape: tuple[int, int, int]
    num_classes: int
    num_train: int


class Dataset(NamedTuple):
    """A data set as an experiment sees it.

    Attributes:
      name: as given to `load`.
      class_names: K of them.
      train: the published training split; `split_validation` holds some of it out.
      test: the published test split.
      fingerprint: SHA-256 of all pixels and labels in order, as hexadecimal digits.
    """

    name: str
    class_names: tuple[str, ...]
    train: Split
    test: Split
    fingerprint: str

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.class_names)

    @property
    def spec(self) -> Spec:
        """Its shapes."""
        height, width, channels = self.train.images.shape[1:]
        return Spec((height, width, channels), self.num_classes, len(self.train.labels))


def load(name: str, data_dir: str = DATA_DIR) -> Dataset:
    """The named data set.

    Args:
      name: a key of `LOADERS`.
      data_dir: where prepared data sets are, in tensorflow_datasets' layout; of `own`, the images
        themselves. ~ is expanded.

    Raises:
      UsageError: if the name is unknown, or the data are not there or not what they should be.
    """
    if name not in LOADERS:
        mine = f"; of your own: dataset=own and data_dir={name}" if os.path.exists(name) else ""
        available = ", ".join(sorted(LOADERS))
        raise UsageError(f"dataset {name!r} is unknown; available: {available}{mine}")
    class_names, train, test = LOADERS[name](data_dir)
    for split, examples in (("train", train), ("test", test)):
        _check(f"{name}'s {split} split", examples, len(class_names))
    return Dataset(name, class_names, train, test, fingerprint(train, test))


def fingerprint(*splits: Split) -> str:
    """SHA-256 of the splits' shapes, types, pixels and labels in order, as hexadecimal digits."""
    digest = hashlib.sha256()
    for array in (array for split in splits for array in split):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def split_validation(train: Split, num_validation: int, seed: int) -> tuple[Split, Split]:
    """The (train, validation) splits: `num_validation` examples held out at random.

    Args:
      train: N examples.
      num_validation: how many to hold out; 0 leaves the training split as it is.
      seed: of the choice; the same seed holds out the same examples.

    Raises:
      UsageError: if nothing would be left to train on.
    """
    num_examples = len(train.labels)
    if not 0 <= num_validation < num_examples:
        raise UsageError(
            f"Cannot hold {num_validation} of {num_examples} training examples out for "
            f"validation; num_validation must be 0 to {num_examples - 1}."
        )
    held_out = np.zeros(num_examples, bool)
    held_out[np.random.default_rng(seed).permutation(num_examples)[:num_validation]] = True
    return train.take(~held_out), train.take(held_out)


def balanced(labels: np.ndarray, num_examples: int, seed: int) -> np.ndarray:
    """Indices of a random subset that has as many examples of each class as of any other.

    Where that cannot be, because num_examples is no multiple of K or a class has too few, the
    numbers are as equal as they can be. Of one seed, a smaller subset is part of a larger one.

    Args:
      labels: int [N].
      num_examples: how many, at most N; 0 takes all.
      seed: of the choice.

    Returns:
      int64 [num_examples], in ascending order.

    Raises:
      UsageError: if there are not so many.
    """
    if not 0 <= num_examples <= len(labels):
        raise UsageError(
            f"Cannot choose {num_examples} of {len(labels)} examples; expected 1 to "
            f"{len(labels)}, or 0 for all."
        )
    order = np.random.default_rng(seed).permutation(len(labels))
    ranks = np.empty(len(labels), np.int64)  # Of each example of `order`, in its class.
    for label in np.unique(labels):
        places = np.flatnonzero(labels[order] == label)
        ranks[places] = np.arange(len(places))
    chosen = order[np.argsort(ranks, kind="stable")][: num_examples or len(labels)]
    return np.sort(chosen)


def _numbers(num_classes: int) -> tuple[str, ...]:
    return tuple(map(str, range(num_classes)))


def _apart(every: Split, share: Callable[[int], int]) -> tuple[Split, Split]:
    """A train and a test split: of each class as many to test as `share` says of its size."""
    rng = np.random.default_rng(0)
    in_test = np.zeros(len(every.labels), bool)
    for label in np.unique(every.labels):
        places = rng.permutation(np.flatnonzero(every.labels == label))
        in_test[places[: share(len(places))]] = True
    return every.take(~in_test), every.take(in_test)


def _digits(data_dir: str) -> Loaded:
    """1,797 handwritten digits of 8x8; 36 of each class, always the same, are the test split."""
    del data_dir
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[..., None]
    every = Split(images, bunch.target.astype(np.int32))
    return _numbers(10), *_apart(every, lambda size: 36)


def _synthetic(data_dir: str) -> Loaded:
    """A pattern for each of 10 classes under weak noise: 256 and 64 images of 8x8x3, for tests."""
    del data_dir
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 256, (10, 8, 8, 3))

    def draw(num_examples: int) -> Split:
        labels = rng.permutation(np.arange(num_examples) % 10).astype(np.int32)
        noise = rng.integers(-25, 26, (num_examples, 8, 8, 3))
        return Split(np.clip(patterns[labels] + noise, 0, 255).astype(np.uint8), labels)

    return _numbers(10), draw(256), draw(64)


def _prepared(name: str, data_dir: str) -> Loaded:
    """A data set from a folder that `prepare` or tensorflow_datasets has written."""
    folder = records.require_folder(name, data_dir)
    train, test = (Split(*records.read_split(folder, name, split)) for split in ("train", "test"))
    return _numbers(records.FORMS[name].classes["label"]), train, test


def _own(data_dir: str) -> Loaded:
    """Images of one's own; where there is no test split, one in five of each class is."""
    names, splits = own.read(Path(os.path.expanduser(data_dir)))
    if "test" in splits:
        return names, Split(*splits["train"]), Split(*splits["test"])
    every = Split(*splits["all"])
    _check("own's data", every, len(names))
    if (least := np.bincount(every.labels).min()) < 2:
        raise UsageError(
            f"{data_dir} has a class with {least} image, and no test split; expected two or more."
        )
    return names, *_apart(every, lambda size: max(1, size // 5))


def _check(what: str, split: Split, num_classes: int) -> None:
    """Raises UsageError unless the arrays have the types, shapes and range that `Split` states."""
    images, labels = split
    if images.dtype != np.uint8 or images.ndim != 4 or labels.dtype != np.int32:
        raise UsageError(
            f"{what} has {images.dtype} images of shape {list(images.shape)} and {labels.dtype} "
            "labels; expected uint8 [N, H, W, C] and int32."
        )
    if labels.shape != (len(images),) or not len(images):
        raise UsageError(
            f"{what} has {len(images)} images and labels of shape {list(labels.shape)}; "
            "expected one label for each image, and at least one."
        )
    if labels.min() < 0 or labels.max() >= num_classes:
        raise UsageError(
            f"{what} has labels from {labels.min()} to {labels.max()}; "
            f"expected 0 to {num_classes - 1}."
        )


LOADERS: dict[str, Callable[[str], Loaded]] = {
    "digits": _digits,
    "mnist": functools.partial(_prepared, "mnist"),
    "cifar10": functools.partial(_prepared, "cifar10"),
    "cifar100": functools.partial(_prepared, "cifar100"),
    "synthetic": _synthetic,
    "own": _own,
}
