"""Evaluates a run's checkpoints under attack and checks for false robustness.

It writes results.jsonl, checks.jsonl, a record of each attack and the config in evaluation/,
masks.npz and, with config.test.save_adversarial, the adversarial images in adversarial/.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from cat_jax import data, weights
from cat_jax.errors import UsageError
from cat_jax.evaluation import masks, result_lines
from cat_jax.evaluation.examination import Examination
from cat_jax.evaluation.examined import Examined, Weights
from cat_jax.evaluation.transfer import Source
from cat_jax.experiment.experiment import Experiment
from cat_jax.runtime import processes
from cat_jax.step.state import TrainState, weights_of
from cat_jax.storage import checkpoint, files
from cat_jax.storage.checkpoint import Checkpoint
from cat_jax.storage.run_folder import RunFolder
from cat_jax.weights.trained import CHECKPOINTS

NUM_MEAN, NUM_SAVED = 1000, 10  # Test images for the mean of M, and with saved masks.


def evaluate(
    experiment: Experiment,
    dataset: data.Dataset,
    folder: RunFolder,
    devices: Sequence[jax.Device],
    source: Source | None = None,
) -> str:
    """Attacks best/ and last/ and writes the results; returns a sentence on the mask, or "".

    Args:
      experiment, dataset, folder: the run.
      devices: devices that share each batch.
      source: other classifiers; their adversarial images attack the checkpoints too.

    Raises:
      UsageError: for more images than there are, or without a checkpoint.
    """
    config = experiment.config
    examine = Examination(experiment, dataset, folder, devices, source)
    template = jax.eval_shape(experiment.init)
    examined: dict[tuple[int, str], Examined] = {}
    for name, (saved_as, averaged) in CHECKPOINTS.items():
        if averaged and experiment.average is None:
            continue
        # The loop ends with the state of last/, whose masks are described.
        restored, state = processes.from_first(
            functools.partial(_restore, folder, saved_as, template)
        )
        variables = weights_of(state)["_average" if averaged else ""]
        attacked = result_lines.attacked_run(experiment, dataset, name, restored)
        attacked["weights"] = weights.fingerprint(variables)
        identity = (restored.step, attacked["weights"])
        if identity not in examined:
            examined[identity] = examine(Weights(variables, attacked, name))
        result_lines.write(folder, *examined[identity].of(attacked))
    if not examine.attacks or config.mask_net.name == "OnesMask":
        return ""
    return describe_mask(experiment, dataset, state, folder)


def evaluate_file(
    experiment: Experiment,
    dataset: data.Dataset,
    folder: RunFolder,
    devices: Sequence[jax.Device],
    loaded: weights.Loaded,
    source: Source | None = None,
) -> None:
    """Attacks weights from a file instead of the run's checkpoints; arguments as for `evaluate`.

    The lines of results name the file and its SHA-256, and no method, variant or seed, so that they
    cannot be confused with results of the run in the same folder.
    """
    attacked = result_lines.attacked_file(experiment, dataset, loaded)
    attacked["weights"] = weights.fingerprint(loaded.variables)
    examine = Examination(experiment, dataset, folder, devices, source)
    result_lines.write(folder, *examine(Weights(loaded.variables, attacked, loaded.file.name)))


def _restore(folder: RunFolder, name: str, template: TrainState) -> tuple[Checkpoint, TrainState]:
    newest = checkpoint.newest(folder.checkpoint(name))
    if newest is None:
        raise UsageError(f"{folder} holds no checkpoint {name}/; train first: --mode=train.")
    return newest, checkpoint.restore(newest, template)


def check_size(experiment: Experiment, dataset: data.Dataset) -> None:
    """Raises UsageError if the config asks for more test images than the data set has."""
    config = experiment.config
    if config.test.num_examples > (number := len(dataset.test.labels)):
        raise UsageError(
            f"config.test.num_examples is {config.test.num_examples}; {config.dataset} has "
            f"{number} test images: expected as many or fewer, or 0 for all."
        )


def describe_mask(
    experiment: Experiment, dataset: data.Dataset, state: TrainState, folder: RunFolder
) -> str:
    """Writes masks.npz, and describes the mask in one sentence.

    The file holds four views of some test images, one of each class; for single-channel images
    also the means of M on bright and on dark pixels, if they have both.
    """
    parts = (experiment.classifier, experiment.mask_net, experiment.method.attack, state)
    seed, split = experiment.config.seed, dataset.test
    one_of_each = data.balanced(split.labels, dataset.num_classes, 0)[:NUM_SAVED]
    views = masks.mask_views(*parts, split.take(one_of_each), seed=seed)
    arrays: dict[str, Any] = jax.device_get(views._asdict())
    arrays["class_names"] = np.array(dataset.class_names)
    text = f"Mean of M over {len(one_of_each)} test images: {np.mean(arrays['mask']):.3f}."
    if dataset.spec.image_shape[-1] == 1:
        first = split.first(NUM_MEAN)
        batch_size = experiment.config.test.batch_size
        means = masks.mask_means(*parts, first, seed=seed, batch_size=batch_size)
        if means is not None:
            arrays |= means._asdict() | {"num_examples": len(first.labels)}
            text = (
                f"Mean of M over the first {len(first.labels)} test images: {means.digit:.3f} on "
                f"bright pixels ({masks.INK} and more), {means.background:.3f} on dark ones."
            )
    with files.replacing(folder.masks_file) as temporary, open(temporary, "wb") as stream:
        np.savez(stream, **arrays)
    return text
