"""The state that training changes; a checkpoint is exactly this pytree."""

import optax
from flax import linen as nn
from flax import struct

from cat_jax.errors import UsageError
from cat_jax.networks.record import takes_train
from cat_jax.types import Array, PyTree


class NetworkState(struct.PyTreeNode):
    """Parameters, running statistics and optimizer state of one network."""

    params: PyTree
    batch_stats: PyTree
    opt_state: PyTree


class TrainState(struct.PyTreeNode):
    """The complete state of a run.

    Attributes:
      step: int32 scalar, the number of updates.
      classifier: f, parameters theta.
      mask_net: g, parameters phi; empty under `OnesMask`.
      average: average over the steps of the classifier's parameters and running
        statistics, {"params": ..., "batch_stats": ...}; empty without an average.
    """

    step: Array
    classifier: NetworkState
    mask_net: NetworkState
    average: PyTree = struct.field(default_factory=dict)


def init_network(
    module: nn.Module,
    tx: optax.GradientTransformation,
    key: Array,
    *inputs: Array,
    output_shape: tuple[int, ...] | None = None,
) -> NetworkState:
    """Initialises parameters, running statistics and optimizer state.

    Args:
      module: classifier or mask network.
      tx: its optimizer.
      key: random key of the initialisation.
      inputs: arrays with the shapes of the network's inputs.
      output_shape: required shape of the output; None accepts any.

    Raises:
      UsageError: if the output has another shape, or a training step cannot run the network.
    """
    output, variables = module.init_with_output(key, *inputs)
    name, shape = type(module).__name__, getattr(output, "shape", type(output).__name__)
    if output_shape is not None and shape != output_shape:
        raise UsageError(
            f"{name} returns {shape} for images of {inputs[0].shape}; expected {output_shape}."
        )
    if others := variables.keys() - {"params", "batch_stats"}:
        raise UsageError(
            f"{name} has variables in {', '.join(sorted(others))}; training supports "
            "params and batch_stats only."
        )
    if "batch_stats" in variables and not takes_train(module):
        raise UsageError(
            f"{name} has batch norm but no argument train; write __call__(..., *, train=False) and "
            "pass use_running_average=not train to its norms."
        )
    return network_state(variables, tx)


def network_state(variables: PyTree, tx: optax.GradientTransformation) -> NetworkState:
    """Returns given parameters and statistics with a new optimizer state."""
    params = variables.get("params", {})
    return NetworkState(params, variables.get("batch_stats", {}), tx.init(params))


def variables_of(net: NetworkState) -> PyTree:
    """The variables that the network's `apply` takes."""
    return {"params": net.params, "batch_stats": net.batch_stats}


def weights_of(state: TrainState) -> dict[str, PyTree]:
    """Variables to evaluate, by suffix: "" is the classifier, "_average" its average."""
    weights = {"": variables_of(state.classifier)}
    return weights | ({"_average": state.average} if state.average else {})
