"""Statistics of averaged weights, in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from cat_jax.data import Feed, Split, unchanged
from cat_jax.data.batches import batch_indices
from cat_jax.networks.norm import BatchNorm
from cat_jax.runtime import processes
from cat_jax.step.state import TrainState, init_network
from cat_jax.training.average_norm import AverageNorm
from cat_jax.types import DEVICES


class Normalised(nn.Module):
    momentum: float = 0.9

    @nn.compact
    def __call__(self, images, *, train=False):
        x = BatchNorm(DEVICES, momentum=self.momentum)(images, train=train)
        x = BatchNorm(DEVICES, momentum=self.momentum, name="second")(x * x, train=train)
        return x.mean((1, 2))


@pytest.mark.parametrize("num_devices, momentum", [(1, 0.9), (4, 0.99)])
def test_statistics_are_the_means_over_the_full_batches_of_an_epoch(num_devices, momentum):
    images = np.random.default_rng(0).integers(0, 256, (30, 3, 3, 2), np.uint8)
    split, devices = Split(images, np.zeros(30, int)), jax.local_devices()[:num_devices]
    network = Normalised(momentum)
    average = network.init(jax.random.key(0), jnp.zeros((1, 3, 3, 2)))
    average["params"]["second"]["scale"] = jnp.array([2.0, 3.0])
    nets = [init_network(network, _Nothing(), jax.random.key(0), jnp.zeros((1, 3, 3, 2)))] * 2
    state = TrainState(jnp.int32(5), *nets, average=processes.replicate(average, devices))
    feed = Feed(split, 3, 8, num_devices, range(num_devices), steps_per_call=2)
    norm = AverageNorm(network, unchanged, feed, jax.random.key(1), devices)
    new = jax.device_get(norm(state).average)

    x = images[[batch_indices(3, step, 30, 8) for step in range(3)]] / 255  # [batches, B, H, W, C]
    for name in ("BatchNorm_0", "second"):
        means, variances = x.mean((1, 2, 3)), x.var((1, 2, 3), ddof=1)
        ours = new["batch_stats"][name]
        np.testing.assert_allclose(ours["mean"], means.mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(ours["var"], variances.mean(0), rtol=1e-5)
        biased = x.var((1, 2, 3), keepdims=True)
        x = ((x - x.mean((1, 2, 3), keepdims=True)) / np.sqrt(biased + 1e-5)) ** 2
    np.testing.assert_array_equal(new["params"]["second"]["scale"], [2.0, 3.0])


class _Nothing:
    """An optimizer without a state."""

    def init(self, params):
        del params
        return ()
