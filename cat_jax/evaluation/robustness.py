"""Attacks the checkpoints of a run, and looks for a robustness that is not there.

Leaves results.jsonl, checks.jsonl, in evaluation/ a record of each attack and the config, masks in
masks.npz and, if asked for, the adversarial images in adversarial/.
"""

import functools
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from cat_jax import data, weights
from cat_jax.errors import UsageError
from cat_jax.evaluation import masks, result_lines
from cat_jax.evaluation.examination import Examination, Examined, Weights
from cat_jax.experiment.experiment import Experiment
from cat_jax.runtime import processes
from cat_jax.step.state import TrainState, weights_of
from cat_jax.storage import checkpoint, files
from cat_jax.storage.checkpoint import Checkpoint
from cat_jax.weights.loading import Loaded
from cat_jax.weights.trained import CHECKPOINTS

MASKED, SHOWN = 1000, 10  # Test images whose masks are described, and kept.


def evaluate(
    experiment: Experiment,
    dataset: data.Dataset,
    workdir: pathlib.Path,
    devices: Sequence[jax.Device],
) -> str:
    """Attacks best/ and last/ and writes the results; returns a line on the mask, or "".

    Raises:
      UsageError: for a subset that cannot be, or without a checkpoint.
    """
    config = experiment.config
    examine = Examination(experiment, dataset, workdir, devices)
    template = jax.eval_shape(experiment.init)
    done: dict[tuple[int, str], Examined] = {}
    for name, (folder, averaged) in CHECKPOINTS.items():
        if averaged and not config.average_decay:
            continue
        found, state = processes.from_first(  # In the end that of last/.
            functools.partial(_restore, workdir / "checkpoints" / folder, template)
        )
        variables = weights_of(state)["_average" if averaged else ""]
        attacked = result_lines.attacked_run(experiment, dataset, name, found.step, found.meta)
        attacked["weights"] = weights.fingerprint(variables)
        same = (found.step, attacked["weights"])
        if same not in done:
            done[same] = examine(Weights(variables, attacked, name))
        result_lines.write(workdir, *done[same].of(attacked))
    if not examine.attacks or config.mask_net.name == "OnesMask":
        return ""
    return describe_mask(experiment, dataset, state, workdir)


def evaluate_file(
    experiment: Experiment,
    dataset: data.Dataset,
    workdir: pathlib.Path,
    devices: Sequence[jax.Device],
    loaded: Loaded,
) -> None:
    """`evaluate` of weights from a file instead of the run's own.

    Their lines name the file and its SHA-256, and no method, variant or seed: whatever else the
    workdir holds, nothing is taken for what it is not.
    """
    attacked = result_lines.attacked_file(experiment, dataset, loaded)
    attacked["weights"] = weights.fingerprint(loaded.variables)
    examine = Examination(experiment, dataset, workdir, devices)
    result_lines.write(workdir, *examine(Weights(loaded.variables, attacked, loaded.file.name)))


def _restore(folder: pathlib.Path, template: TrainState) -> tuple[Checkpoint, TrainState]:
    found = checkpoint.newest(folder)
    if found is None:
        workdir = folder.parent.parent
        raise UsageError(
            f"{workdir} holds no checkpoint {folder.name}/; train first: --mode=train."
        )
    return found, checkpoint.restore(found, template)


def check_size(config: ConfigDict, dataset: data.Dataset) -> None:
    """Raises UsageError if more examples are asked for than there are: before the training."""
    if config.test.num_examples > (number := len(dataset.test.labels)):
        raise UsageError(
            f"config.test.num_examples is {config.test.num_examples}; {config.dataset} has "
            f"{number} test images: expected as many or fewer, or 0 for all."
        )


def describe_mask(
    experiment: Experiment, dataset: data.Dataset, state: TrainState, workdir: pathlib.Path
) -> str:
    """What g lets through, in one line.

    Leaves masks.npz: some test images, one of each class, in four views; and of single-channel
    images the means of M on the digit and around it.
    """
    parts = (experiment.classifier, experiment.mask_net, experiment.method.attack, state)
    seed, split = experiment.config.seed, dataset.test
    one_of_each = data.balanced(split.labels, dataset.num_classes, 0)[:SHOWN]
    views = masks.mask_views(*parts, split.take(one_of_each), seed=seed)
    kept: dict[str, Any] = jax.device_get(views._asdict())
    kept["class_names"] = np.array(dataset.class_names)
    text = f"Mean of M over {len(one_of_each)} test images: {np.mean(kept['mask']):.3f}."
    if dataset.spec.image_shape[-1] == 1:
        first = split.first(MASKED)
        batch_size = experiment.config.test.batch_size
        means = masks.mask_means(*parts, first, seed=seed, batch_size=batch_size)
        kept |= means._asdict() | {"num_examples": len(first.labels)}
        text = (
            f"Mean of M over the first {len(first.labels)} test images: {means.digit:.3f} on the "
            f"digit (pixels of {masks.INK} and more), {means.background:.3f} on the background."
        )
    with files.replacing(workdir / "masks.npz") as temporary, open(temporary, "wb") as stream:
        np.savez(stream, **kept)
    return text
