"""The networks of a run, with the weights of one of its checkpoints; the data are not needed.

from cat_jax.weights import trained

run = trained.load("runs/digits")
logits = run.classifier.logits_fn(images)
"""

import pathlib
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from cat_jax import data
from cat_jax.errors import UsageError, check_choice
from cat_jax.experiment import run_config, settings
from cat_jax.experiment.network import build_networks
from cat_jax.runtime.registry import import_plugins
from cat_jax.storage import checkpoint, run_folder
from cat_jax.types import PyTree
from cat_jax.weights.loading import Loaded

# Weights to attack or export: folder of the checkpoint, and whether they are the average.
CHECKPOINTS = {
    "best": ("best", False),
    "last": ("last", False),
    "best_average": ("best_average", True),
    "last_average": ("last", True),
}


class Trained(NamedTuple):
    """The networks of a run, with the weights of one checkpoint.

    Attributes:
      classifier: f and its weights.
      mask_net: g and its weights; None without one.
      config: resolved config of the run.
      checkpoint: name of the checkpoint, such as "best".
      step: the number of updates made.
      epoch: the number of epochs trained, a fraction within one.
      image_shape: (H, W, C) of the images that the run was trained on.
    """

    classifier: Loaded
    mask_net: Loaded | None
    config: ConfigDict
    checkpoint: str
    step: int
    epoch: float
    image_shape: tuple[int, int, int]


def load(workdir: str | pathlib.Path, name: str = "best") -> Trained:
    """The networks of a run.

    Args:
      workdir: folder of the run.
      name: name of the checkpoint, a key of `CHECKPOINTS`.

    Raises:
      UsageError: if the folder is no run, or has no such checkpoint.
    """
    check_choice("checkpoint", name, CHECKPOINTS)
    saved_as, averaged = CHECKPOINTS[name]
    folder = run_folder.named(workdir, "the workdir")
    if folder.config() is None:
        raise UsageError(f"{folder} holds no config.json; name a run's folder.")
    config = settings.resolve(run_config.read(folder))
    newest = checkpoint.newest(folder.checkpoint(saved_as))
    tree = checkpoint.restore_arrays(newest) if newest else {}
    if newest is None or (averaged and not tree.get("average")):
        raise UsageError(f"{folder} holds no checkpoint {name}; train first, or name another.")
    import_plugins(config.plugins)
    spec = _spec(newest)
    classifier, mask_net = build_networks(config, spec)
    of_file: tuple[Any, ...] = (newest.path, newest.digest, {})
    theta = tree["average"] if averaged else tree["classifier"]
    phi = tree.get("mask_net") or {}
    return Trained(
        Loaded(classifier, _variables(theta), *of_file),
        Loaded(mask_net, _variables(phi), *of_file) if phi.get("params") else None,
        config,
        name,
        newest.step,
        newest.meta["epoch"],
        spec.image_shape,
    )


def _variables(tree: PyTree) -> PyTree:
    return {name: tree.get(name) or {} for name in ("params", "batch_stats")}


def _spec(saved: checkpoint.Checkpoint) -> data.Spec:
    """Shapes of the training data of a checkpoint."""
    if "image_shape" not in saved.meta:
        raise UsageError(
            f"{saved.path} does not state the shape of its images, because an older version wrote "
            "it; train again, or resume for one more step."
        )
    height, width, channels = saved.meta["image_shape"]
    return data.Spec((height, width, channels), len(saved.meta["class_names"]), 0)
