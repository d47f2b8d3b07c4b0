"""Batch-norm statistics of averaged weights, computed over training images.

Averaged weights never ran in training mode, so averages of running statistics are not theirs.
Stochastic weight averaging (Izmailov et al. 2018) recomputes the statistics.
"""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from cat_jax.data import Augment, Feed
from cat_jax.networks.record import training_mode
from cat_jax.runtime import processes
from cat_jax.step.state import TrainState
from cat_jax.step.train_step import Batch, examples
from cat_jax.types import DEVICES, Array, PyTree

PROBE = 2.0**20  # Large, because then the share of the old statistic is known to seven digits.


class AverageNorm:
    """Computes the running statistics of given parameters over one epoch of natural images.

    The images are the batches of the first epoch, augmented as there, without a last batch that
    reaches into the second. The statistics are the means over these batches of the statistics of a
    batch. They depend on the parameters and the seed of the run alone.

    Args:
      classifier: network as training steps run it.
      augment: augmentation of the training images.
      feed: batches of the run.
      key: key of the run's random numbers.
      devices: devices that share each batch.
    """

    def __init__(
        self,
        classifier: nn.Module,
        augment: Augment,
        feed: Feed,
        key: Array,
        devices: Sequence[jax.Device],
    ) -> None:
        self._feed, self._key = dataclasses.replace(feed, steps_per_call=1), key
        self._devices = devices
        self._num_batches = max(len(feed.split.labels) // feed.batch_size, 1)
        pmap = functools.partial(jax.pmap, axis_name=DEVICES, devices=devices, out_axes=None)
        measure = functools.partial(_statistics, classifier, augment)
        self._measure = pmap(measure, in_axes=(None, None, 0, None, None))

    def __call__(self, state: TrainState) -> TrainState:
        """Returns the state with new statistics of its average."""
        params, old = state.average["params"], state.average["batch_stats"]
        if not old:
            return state
        zeros = jax.tree.map(jnp.zeros_like, old)
        probes = jax.tree.map(lambda x: x + PROBE, zeros)

        def measure(step: int, statistics: PyTree) -> PyTree:
            return self._measure(params, statistics, self._feed(step), step, self._key)

        first = measure(0, zeros)
        # A running statistic is share * old + (1 - share) * statistic of the batch.
        shares = jax.tree.map(lambda a, b: (a - b) / PROBE, measure(0, probes), first)
        total = first
        for step in range(1, self._num_batches):
            total = jax.tree.map(jnp.add, total, measure(step, zeros))
        new = jax.tree.map(lambda x, share: x / (1 - share) / self._num_batches, total, shares)
        new = processes.replicate(jax.device_get(new), self._devices)
        return state.replace(average={"params": params, "batch_stats": new})


def _statistics(
    classifier: nn.Module,
    augment: Augment,
    params: PyTree,
    old: PyTree,
    batch: Batch,
    step: Array,
    key: Array,
) -> PyTree:
    """The running statistics after one forward in training mode, the mean over the devices."""
    images = examples(augment, 1, step, batch, key)["image"][0]
    variables = {"params": params, "batch_stats": old}
    _, new = classifier.apply(
        variables, images, **training_mode(classifier), mutable=["batch_stats"]
    )
    return lax.pmean(new["batch_stats"], DEVICES)
