"""Training that begins with the classifier of another run, or with one in a file of weights."""

import logging
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from cat_jax import weights
from cat_jax.errors import UsageError
from cat_jax.step.state import TrainState, variables_of
from cat_jax.storage import paths
from cat_jax.types import PyTree
from cat_jax.weights import Loaded, describe, recognition, trained
from cat_jax.weights.loading import fingerprint

logger = logging.getLogger(__name__)


def read(source: str) -> Loaded:
    """The classifier of a run, from its checkpoint best/, or that in a file of weights.

    Raises:
      UsageError: if there is none.
    """
    path = paths.local_path(source, "config.init_from")
    return trained.load(path).classifier if path.is_dir() else weights.load(path)


def identity(source: str) -> str:
    """Twelve hexadecimal digits of the SHA-256 of the weights, for config.init_weights."""
    return fingerprint(read(source).variables)[:12]


def begin(state: TrainState, classifier: nn.Module, source: str, expected: str) -> TrainState:
    """Returns the state with the weights of `source` in the place of the classifier's.

    A source with another number of classes leaves the last layer of `state` unchanged.

    Args:
      state: the state before the first step.
      classifier: network that the run trains.
      source: path of a run, or of a file of weights.
      expected: identity of the weights when the run was created.

    Raises:
      UsageError: if the source changed, or holds another network.
    """
    loaded = read(source)
    actual = fingerprint(loaded.variables)[:12]
    if actual != expected:
        raise UsageError(
            f"config.init_from: the weights of {source} changed: their fingerprint was {expected} "
            f"and is {actual}; use another workdir."
        )
    variables, replaced = adopt(variables_of(state.classifier), loaded, classifier)
    logger.info("Training begins with the weights of %s.", loaded.file)
    if replaced:
        logger.info("It has another number of classes: %s is new.", replaced)
    theta = state.classifier.replace(**variables)
    # A copy, because a step donates both.
    average = jax.tree.map(jnp.copy, variables) if state.average else {}
    return state.replace(classifier=theta, average=average)


def adopt(variables: PyTree, loaded: Loaded, classifier: nn.Module) -> tuple[PyTree, str]:
    """Returns the variables with the loaded values, and the name of the layer that keeps its own.

    Args:
      variables: {"params": ..., "batch_stats": ...} of the network that the run trains.
      loaded: network and weights to begin with.
      classifier: network that the run trains.

    Raises:
      UsageError: if the networks differ in more than the number of classes.
    """
    for name in ("mean", "std"):
        stated, wanted = (tuple(getattr(net, name, ())) for net in (loaded.network, classifier))
        if stated != wanted:
            raise UsageError(
                f"config.init_from: {loaded.file} normalises images with {name} {list(stated)}, "
                f"the run with {list(wanted)}; set config.classifier.{name}, or normalize=False."
            )
    for name in recognition.unseen_arguments(classifier):
        theirs, ours = (getattr(net, name, None) for net in (loaded.network, classifier))
        if theirs != ours:
            raise UsageError(
                f"config.init_from: {loaded.file} holds a network with {name}={theirs}, the run "
                f"trains one with {ours}; set config.classifier.{name}."
            )
    given, own = _by_path(loaded.variables), _by_path(variables)
    differing = {path for path in own if path in given and given[path].shape != own[path].shape}
    layers = {path.rpartition("/")[0] for path in differing}
    heads = all(given[path].shape[:-1] == own[path].shape[:-1] for path in differing)
    if given.keys() != own.keys() or len(layers) > 1 or not heads:
        raise UsageError(
            f"config.init_from: {loaded.file} holds {describe(loaded.network)}, and the run trains "
            f"{describe(classifier)}; choose that network with config.classifier."
        )
    values = {path: own[path] if path in differing else given[path] for path in own}
    leaves = [values[path] for path in own]
    return jax.tree.unflatten(jax.tree.structure(variables), leaves), "".join(layers)


def _by_path(variables: PyTree) -> dict[str, Any]:
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(variables)
    }
