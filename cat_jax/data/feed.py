"""The batches that training steps take, from a split in memory."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from cat_jax.data.batches import batch_indices
from cat_jax.data.splits import Split


@dataclasses.dataclass(frozen=True)
class Feed:
    """What `step_fn` takes at each step; a pure function of the seed and the step.

    Attributes:
      split: training split.
      seed: decides the order of its examples.
      batch_size: B, global.
      num_devices: D, of all processes.
      device_positions: positions of this process's devices among them.
      steps_per_call: K, the most steps in one call of `step_fn`.
    """

    split: Split
    seed: int
    batch_size: int
    num_devices: int
    device_positions: Sequence[int]
    steps_per_call: int = 1

    def __call__(self, step: int, count: int = 1) -> dict[str, np.ndarray]:
        """Batch `step`; for several steps in one call those of `count` steps, [D, K, B/D, ...]."""
        if self.steps_per_call == 1:
            return self._batch(step)
        batches = [self._batch(step + i) for i in range(count)]
        batches += batches[:1] * (self.steps_per_call - count)
        stacked = {name: np.stack([batch[name] for batch in batches], 1) for name in batches[0]}
        return {**stacked, "count": np.full(len(self.device_positions), count, np.int32)}

    def _batch(self, step: int) -> dict[str, np.ndarray]:
        """This process's part of batch `step`, split over its devices: [D, B/D, ...]."""
        num_examples = len(self.split.labels)
        indices = batch_indices(self.seed, step, num_examples, self.batch_size)
        indices = indices.reshape(self.num_devices, -1)[list(self.device_positions)]
        images, labels = self.split.images[indices], self.split.labels[indices]
        return {"image": images, "label": labels}
