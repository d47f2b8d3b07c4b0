"""The networks of a run, with the weights of one of its checkpoints; the data are not needed.

from cat_jax.weights import trained

run = trained.load("runs/digits")
logits = run.classifier.logits_fn(images)
"""

import pathlib
from typing import Any, NamedTuple

from flax import linen as nn
from ml_collections import ConfigDict

from cat_jax import data, weights
from cat_jax.configs import _kept
from cat_jax.errors import UsageError, check_choice
from cat_jax.experiment import settings
from cat_jax.experiment.network import build_networks
from cat_jax.storage import checkpoint, run_folder
from cat_jax.types import PyTree
from cat_jax.weights import pytorch_names
from cat_jax.weights.loading import Loaded

# What can be attacked and exported: the folder of its checkpoint, and whether it is the average.
CHECKPOINTS = {
    "best": ("best", False),
    "last": ("last", False),
    "best_average": ("best_average", True),
    "last_average": ("last", True),
}


class Trained(NamedTuple):
    """What a run has trained.

    Attributes:
      classifier: f and its weights.
      mask_net: g and its weights; None without one.
      config: of the run, as `settings.resolve` left it.
      checkpoint: its name, such as "best".
      step: the number of updates made.
    """

    classifier: Loaded
    mask_net: Loaded | None
    config: ConfigDict
    checkpoint: str
    step: int


def load(workdir: str | pathlib.Path, name: str = "best") -> Trained:
    """The networks of a run.

    Args:
      workdir: of the run.
      name: of the checkpoint, a key of `CHECKPOINTS`.

    Raises:
      UsageError: if it is no run's workdir, or has no such checkpoint.
    """
    check_choice("checkpoint", name, CHECKPOINTS)
    folder, averaged = CHECKPOINTS[name]
    workdir = pathlib.Path(workdir)
    if run_folder.read_config(workdir) is None:
        raise UsageError(f"{workdir} holds no config.json; name a run's folder.")
    config = settings.resolve(_kept.get_config(str(workdir)))
    found = checkpoint.newest(workdir / "checkpoints" / folder)
    tree = checkpoint.restore_arrays(found) if found else {}
    if found is None or (averaged and not tree.get("average")):
        raise UsageError(f"{workdir} holds no checkpoint {name}; train first, or name another.")
    classifier, mask_net = build_networks(config, _spec(config.classifier.name, tree))
    of_file: tuple[Any, ...] = (found.path, found.digest, {})
    theta = tree["average"] if averaged else tree["classifier"]
    phi = tree.get("mask_net") or {}
    return Trained(
        Loaded(classifier, _variables(theta), *of_file),
        Loaded(mask_net, _variables(phi), *of_file) if phi.get("params") else None,
        config,
        name,
        found.step,
    )


def _variables(tree: PyTree) -> PyTree:
    return {name: tree.get(name) or {} for name in ("params", "batch_stats")}


def _spec(name: str, tree: PyTree) -> data.Spec:
    """What the classifier's shapes say of its data set; the size of its images is left open."""
    entries = pytorch_names.to_state_dict(name, _variables(tree["classifier"]))
    network: Any = weights.infer(entries, {})
    first = entries.get("conv1.weight", entries.get("0.weight"))
    assert isinstance(network, nn.Module) and first is not None
    return data.Spec((0, 0, first.shape[1]), network.num_classes, 0)
