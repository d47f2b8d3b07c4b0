"""What training changes, and nothing else: a checkpoint is exactly this pytree."""

import optax
from flax import linen as nn
from flax import struct

from cat_jax.types import Array, PyTree


class NetworkState(struct.PyTreeNode):
    """One network under training."""

    params: PyTree
    batch_stats: PyTree
    opt_state: PyTree


class TrainState(struct.PyTreeNode):
    """All that one update changes.

    Attributes:
      step: int32 scalar, the number of updates made.
      classifier: f, parameters theta.
      mask_net: g, parameters phi; empty under `OnesMask`.
      average: exponential moving average of the classifier's parameters and running
        statistics, {"params": ..., "batch_stats": ...}; empty if none is kept.
    """

    step: Array
    classifier: NetworkState
    mask_net: NetworkState
    average: PyTree = struct.field(default_factory=dict)


def init_network(
    module: nn.Module, tx: optax.GradientTransformation, key: Array, *inputs: Array
) -> NetworkState:
    """Fresh parameters and optimizer state; `inputs` give the shapes."""
    return network_state(module.init(key, *inputs), tx)


def network_state(variables: PyTree, tx: optax.GradientTransformation) -> NetworkState:
    """Given parameters and statistics, and fresh optimizer state."""
    params = variables.get("params", {})
    return NetworkState(params, variables.get("batch_stats", {}), tx.init(params))


def variables_of(net: NetworkState) -> PyTree:
    """What the network's `apply` takes."""
    return {"params": net.params, "batch_stats": net.batch_stats}


def weights_of(state: TrainState) -> dict[str, PyTree]:
    """Variables that can be evaluated, by suffix: "" the classifier, "_average" its average."""
    weights = {"": variables_of(state.classifier)}
    return weights | ({"_average": state.average} if state.average else {})
