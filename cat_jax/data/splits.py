"""Data sets in memory: uint8 images and int32 labels, and how examples are set aside."""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cat_jax.errors import UsageError


class Split(NamedTuple):
    """Examples in a fixed order.

    Attributes:
      images: uint8 [N, H, W, C].
      labels: int32 [N], from 0 to K - 1.
    """

    images: np.ndarray
    labels: np.ndarray

    def first(self, num_examples: int) -> "Split":
        """The first `num_examples` examples, or all if there are fewer."""
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
      name: config.dataset.
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
      num_validation: how many to hold out; 0 leaves the training split unchanged.
      seed: decides the choice; the same seed holds out the same examples.

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

    If num_examples is no multiple of K, or a class has too few, the numbers are as equal as
    possible. With one seed, a smaller subset is part of a larger one.

    Args:
      labels: int [N].
      num_examples: how many, at most N; 0 takes all.
      seed: decides the choice.

    Returns:
      int64 [num_examples], in ascending order.

    Raises:
      UsageError: if there are fewer examples.
    """
    if not 0 <= num_examples <= len(labels):
        raise UsageError(
            f"Cannot choose {num_examples} of {len(labels)} examples; expected 1 to "
            f"{len(labels)}, or 0 for all."
        )
    order = np.random.default_rng(seed).permutation(len(labels))
    ranks = np.empty(len(labels), np.int64)  # Rank of each example of `order` in its class.
    for label in np.unique(labels):
        places = np.flatnonzero(labels[order] == label)
        ranks[places] = np.arange(len(places))
    subset = order[np.argsort(ranks, kind="stable")][: num_examples or len(labels)]
    return np.sort(subset)


def split_test(examples: Split, share: Callable[[int], int]) -> tuple[Split, Split]:
    """The (train, test) splits, always the same ones.

    Args:
      examples: all examples.
      share: size of a class -> how many of its examples the test split gets.
    """
    rng = np.random.default_rng(0)
    in_test = np.zeros(len(examples.labels), bool)
    for label in np.unique(examples.labels):
        places = rng.permutation(np.flatnonzero(examples.labels == label))
        in_test[places[: share(len(places))]] = True
    return examples.take(~in_test), examples.take(in_test)
