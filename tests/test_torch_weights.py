"""State dicts: what does not fit is refused, in one line that helps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from cat_jax import networks
from cat_jax.weights import pytorch_names

MADE = {
    "SmallCNN": jax.eval_shape(networks.SmallCNN().init, jax.random.key(0), jnp.zeros((1, 8, 8, 1)))
}


def state_dict():
    zeros = jax.tree.map(lambda s: np.zeros(s.shape, np.float32), MADE["SmallCNN"])
    return pytorch_names.to_state_dict("SmallCNN", zeros)


@pytest.mark.parametrize(
    "network, entries, message",
    [
        ("ResNet34", {}, "the network is 'ResNet34'; available: .*PreActResNet18"),
        ("SmallCNN", {"epoch": 3}, "entry 'epoch'; expected <module>.<leaf>.*own state dict"),
        ("ResNet18", {"conv1.gamma": np.ones(3)}, "entry 'conv1.gamma'; expected"),
        ("SmallCNN", {"13.weight": np.ones((3, 3))}, "entry '13.weight'; the network has.*0, 2"),
        ("ResNet18", {"conv1.weight": np.ones((3, 3, 3))}, r"shape \[3, 3, 3\]; expected 1, 2 or"),
    ],
)
def test_what_fits_no_rule_is_refused(network, entries, message):
    with pytest.raises(ValueError, match=message) as error:
        pytorch_names.from_state_dict(network, entries)
    assert "\n" not in str(error.value)


def test_a_name_is_checked_on_the_way_out_too():
    with pytest.raises(ValueError, match="the network is 'resnet18'; available"):
        pytorch_names.to_state_dict("resnet18", {})


def test_published_wrappings_are_undone():
    """DataParallel's prefix, counters, and a block that three baselines build but never run."""
    extra = {"module.sub_block1.layer.0.bn1.weight": np.ones(16), "bn1.num_batches_tracked": 7}
    entries = {"module.conv1.weight": np.zeros((16, 3, 3, 3))}
    made = pytorch_names.from_state_dict("WideResNet", entries | extra)
    assert list(flatten_dict(made["params"])) == [("conv1", "kernel")]


def test_layouts_and_a_network_that_runs_on_them():
    entries = state_dict()
    entries["0.weight"] = np.random.RandomState(0).normal(size=(32, 1, 3, 3)).astype(np.float32)
    made = pytorch_names.from_state_dict("SmallCNN", entries)
    kernel = made["params"]["conv1"]["kernel"]
    assert kernel[2, 1, 0, 5] == entries["0.weight"][5, 0, 2, 1]
    assert networks.SmallCNN().apply(made, jnp.zeros((2, 8, 8, 1))).shape == (2, 10)
