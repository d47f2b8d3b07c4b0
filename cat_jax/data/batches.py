"""Which examples batch t holds: a pure function of (seed, t), so that a resume is exact.

Training reads an endless stream, the permutations of epoch 0, 1, 2, ... one after another, cut
into full batches across the ends of epochs: there is one batch shape and no example is dropped.
(The published code ends every epoch with a short batch.) Evaluation reads each example once.
"""

import dataclasses
import fractions
import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from cat_jax.errors import UsageError


def batch_indices(
    seed: int, step: int, num_examples: int, batch_size: int, stream: int = 0
) -> np.ndarray:
    """The examples of the batch that training step `step` reads.

    Args:
      seed: integer of 0 or more that decides the order of examples.
      step: t, counted from 0.
      num_examples: N.
      batch_size: B, the global batch over all devices; it may exceed N.
      stream: number of the order, 0 or more; those of one seed are independent.

    Returns:
      Indices into the training split, int64 [B], each in [0, N).
    """
    _check_sizes(num_examples, batch_size)
    start = int(step) * batch_size
    epochs, places = np.divmod(np.arange(start, start + batch_size), num_examples)
    return np.concatenate(
        [
            _permutation(seed, epoch, num_examples, stream)[places[epochs == epoch]]
            for epoch in range(int(epochs[0]), int(epochs[-1]) + 1)
        ]
    )


@dataclasses.dataclass(frozen=True)
class Clock:
    """What time it is, in epochs of the stream of batches; step 0 is the first.

    Attributes:
      num_examples: N, of the training split.
      batch_size: B, global.
    """

    num_examples: int
    batch_size: int

    def __post_init__(self) -> None:
        _check_sizes(self.num_examples, self.batch_size)

    def steps_until(self, epoch: float | fractions.Fraction) -> int:
        """The first step whose first example belongs to `epoch` or later: ceil(epoch N / B)."""
        return math.ceil(fractions.Fraction(epoch) * self.num_examples / self.batch_size)

    def epoch_of(self, step: Any) -> Any:
        """The epoch, from 0, that the first example of a step belongs to: floor(step B / N)."""
        return self._epoch_and_rest(step)[0]

    def epochs_after(self, step: Any) -> Any:
        """Epochs, with their fraction, that are over when a step is done: (step + 1) B / N."""
        epoch, rest = self._epoch_and_rest(step + 1)
        return epoch + rest

    def _epoch_and_rest(self, step: Any) -> tuple[Any, Any]:
        """In integers none larger than N B, so that a compiled step counts as exactly."""
        common = math.gcd(self.num_examples, self.batch_size)
        examples, batch = self.num_examples // common, self.batch_size // common
        whole, rest = step // examples * batch, step % examples * batch
        return whole + rest // examples, rest % examples / examples


def padded_batches(num_examples: int, batch_size: int) -> Iterator[tuple[np.ndarray, int]]:
    """Every example once and in order, in batches of one shape.

    The last batch is filled up with its last example. A caller counts only the first `valid`
    results of a batch, so that the number of examples is exactly N.

    Args:
      num_examples: N; of none, there are no batches.
      batch_size: B.

    Yields:
      (indices, valid): int64 [B], and how many of them, from the front, are not padding.
    """
    _check_sizes(max(num_examples, 1), batch_size)
    for start in range(0, num_examples, batch_size):
        indices = np.minimum(np.arange(start, start + batch_size), num_examples - 1)
        yield indices, min(batch_size, num_examples - start)


@functools.lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, num_examples: int, stream: int = 0) -> np.ndarray:
    """The order of one epoch, int64 [N]; read-only, because the next step reads it again."""
    entropy = [seed, epoch, stream] if stream else [seed, epoch]
    order = np.random.default_rng(entropy).permutation(num_examples)
    order.setflags(write=False)
    return order


def _check_sizes(num_examples: int, batch_size: int) -> None:
    if num_examples < 1 or batch_size < 1:
        raise UsageError(
            f"Cannot cut {num_examples} examples into batches of {batch_size}; "
            "both numbers must be 1 or more."
        )
