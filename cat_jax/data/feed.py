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
      extra: images beside the training split, in their own order; None: none.
      num_extra: number of extra images in a batch, spread evenly over its positions.
    """

    split: Split
    seed: int
    batch_size: int
    num_devices: int
    device_positions: Sequence[int]
    steps_per_call: int = 1
    extra: Split | None = None
    num_extra: int = 0

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
        indices, is_extra = (
            array.reshape(self.num_devices, -1)[list(self.device_positions)]
            for array in self._places(step)
        )
        shape = *indices.shape, *self.split.images.shape[1:]
        images = np.empty(shape, self.split.images.dtype)
        labels = np.empty(indices.shape, self.split.labels.dtype)
        for split, places in ((self.split, ~is_extra), (self.extra, is_extra)):
            if split is not None:
                images[places] = split.images[indices[places]]
                labels[places] = split.labels[indices[places]]
        return {"image": images, "label": labels}

    def _places(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """For each position of batch `step` an index, and whether it is one of the extra images."""
        counts = np.arange(self.batch_size + 1) * self.num_extra // self.batch_size
        is_extra = np.diff(counts) > 0
        indices = np.empty(self.batch_size, np.int64)
        for stream, split in enumerate((self.split, self.extra)):
            if split is not None:
                places = is_extra == bool(stream)
                order = (len(split.labels), int(places.sum()), stream)
                indices[places] = batch_indices(self.seed, step, *order)
        return indices, is_extra
