"""The two networks that golden/attacks attacks, with their images, labels and numbers."""

import functools

import golden
import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from cat_jax import networks
from cat_jax.networks.conv import convolve
from cat_jax.weights import pytorch_names


def small_net(weights, images):
    """The three-convolution net of golden/attacks, straight from its state dict."""
    x = images
    for name, stride in (("0", 1), ("2", 2), ("4", 2)):
        x = convolve(x, pytorch_names.to_ours(weights[f"{name}.weight"]), stride, 1)
        x = jax.nn.relu(x + weights[f"{name}.bias"].reshape(1, 1, 1, -1))
    x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    return x @ weights["7.weight"].T + weights["7.bias"].reshape(1, -1)


@functools.cache
def setting(net, dtype):
    """(logits_fn, images, labels, info, arrays) of one of the two nets."""
    meta, arrays = golden.load("attacks")
    info, common = meta[net], meta["_meta"]
    weights = golden.state_dict(info["state_dict"], common["weight_seed"])
    arrays = {k.partition("/")[2]: v for k, v in arrays.items() if k.startswith(f"{net}/")}
    images = jnp.asarray(golden.uniform(common["input_seed"], arrays["fgsm_ce_clip"].shape), dtype)
    if net == "mnist":
        variables = jax.device_put(pytorch_names.from_state_dict("SmallCNN", weights))
        logits_fn = Partial(networks.SmallCNN().apply, variables)
    else:
        logits_fn = Partial(small_net, jax.device_put(weights))
    return logits_fn, images, jnp.asarray(info["labels"]), info, arrays
