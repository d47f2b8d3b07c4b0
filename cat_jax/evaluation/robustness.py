"""Attacks the checkpoints of a run, and looks for a robustness that is not there.

Leaves results.jsonl, checks.jsonl, a record of each attack in evaluation/, masks in masks.npz and,
if asked for, the adversarial images in adversarial/.
"""

import contextlib
import functools
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from ml_collections import ConfigDict

from cat_jax import checks, data
from cat_jax.attacks.named import NamedAttack
from cat_jax.checks import Finding
from cat_jax.errors import UsageError
from cat_jax.evaluation import masks, result_lines
from cat_jax.evaluation.budget import budget
from cat_jax.evaluation.evaluator import Evaluator
from cat_jax.evaluation.results import Result
from cat_jax.experiment import settings
from cat_jax.experiment.experiment import Experiment
from cat_jax.experiment.fields import Affects
from cat_jax.runtime import processes, terminal
from cat_jax.step.state import TrainState, weights_of
from cat_jax.storage import checkpoint, files, run_folder
from cat_jax.storage.checkpoint import Checkpoint
from cat_jax.types import PyTree
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
    done: dict[tuple[int, str], tuple[list[Result], list[Finding]]] = {}
    for name, (folder, averaged) in CHECKPOINTS.items():
        suffix = "_average" if averaged else ""
        if averaged and not config.average_decay:
            continue
        found, state = processes.from_first(  # In the end that of last/.
            functools.partial(_restore, workdir / "checkpoints" / folder, template)
        )
        if (this := (found.step, suffix)) not in done:
            variables = weights_of(state)[suffix]
            done[this] = examine(
                Weights(variables, name, f"step{found.step}{suffix}", found.digest)
            )
        of_run = {"checkpoint": name, "step": found.step}
        of_run |= result_lines.describe(experiment, dataset, found.meta.get("num_devices"))
        result_lines.write(workdir, of_run, *done[this])
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

    Their lines go by the file's name and SHA-256, and so do their records: whatever else the
    workdir holds, nothing is taken for what it is not.
    """
    examine = Examination(experiment, dataset, workdir, devices)
    digest = loaded.digest[:12]
    name = f"{loaded.file.name}@{digest}"
    found = examine(Weights(loaded.variables, name, run_folder.weights_stem(loaded.digest), digest))
    of_file: dict[str, Any] = {"checkpoint": name, "step": None}
    of_file |= result_lines.describe(experiment, dataset, None) | {"selection": "unknown"}
    of_file["weights"] = {"file": str(loaded.file), "sha256": loaded.digest}
    result_lines.write(workdir, of_file, *found)


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


class Weights(NamedTuple):
    """What is attacked: a classifier's variables, and their names.

    Attributes:
      variables: parameters and running statistics.
      name: of the checkpoint, for people.
      file: how the names of files begin.
      digest: of the checkpoint.
    """

    variables: PyTree
    name: str
    file: str
    digest: str


class Examination:
    """The attacks of a config on its examples, and the checks; of one checkpoint after another."""

    def __init__(
        self,
        experiment: Experiment,
        dataset: data.Dataset,
        workdir: pathlib.Path,
        devices: Sequence[jax.Device],
    ) -> None:
        config, labels = experiment.config, dataset.test.labels
        self.attacks = experiment.attacks
        self._classifier, self._seed = experiment.classifier, config.seed
        self._settings, self._workdir = config.test, workdir
        self._indices = data.balanced(labels, config.test.num_examples, config.test.subset_seed)
        self._split = dataset.test.take(self._indices)
        # A part of the test split has files of its own, so that those of the whole are not lost.
        self._part = f"_{len(self._indices)}" if len(self._indices) < len(labels) else ""
        self._evaluator = Evaluator(
            experiment.classifier, config.seed, config.test.batch_size, devices
        )
        decided_by = settings.fingerprint(config, Affects.EVALUATION)
        self._identity = f"{config.seed} {decided_by} {dataset.fingerprint}"

    def __call__(self, weights: Weights) -> tuple[list[Result], list[Finding]]:
        """Attacks one set of weights in all ways, and checks it."""
        if not self.attacks:
            return [], []
        results: dict[str, Result] = {}
        for named in self.attacks:
            result = self._attack(weights, named, self._split, results.get(named.after))
            results[named.name] = result
            if result.adversarial is None or named.attack is None:
                continue
            if self._settings.save_adversarial == "float32" or not named.clipped:
                self._save(weights, result, result.adversarial)
                continue
            images = to_bytes(result.adversarial, self._split.images, named.epsilon)
            rounded = NamedAttack(f"{named.name}_uint8", None)
            result = self._attack(weights, rounded, self._split._replace(images=images), None)
            results[rounded.name] = result
            self._save(weights, result, images)
        attacked = {named.name: results[named.name] for named in self.attacks}
        flags = {name: result.flags for name, result in attacked.items()}
        compared = [budget(list(attacked.values())), *checks.compare(flags)]
        return list(results.values()), [*compared, *self._check(weights)]

    def _attack(
        self, weights: Weights, named: NamedAttack, split: data.Split, before: Result | None
    ) -> Result:
        file = f"{weights.file}_{named.name}{self._part}"
        with progress(f"{weights.name} {named.name}", len(split.labels)) as told:
            return self._evaluator(
                weights.variables,
                named,
                split,
                indices=self._indices,
                before=before,
                file=self._workdir / "evaluation" / f"{file}.npz",
                identity=f"{weights.digest} {file} {self._identity}",
                keep_images=self._settings.save_adversarial != "none",
                on_batch=told,
            )

    def _save(self, weights: Weights, result: Result, images: np.ndarray) -> None:
        """Images as attacked, with their labels, indices in the test split, and flags."""
        file = self._workdir / "adversarial" / f"{weights.file}_{result.attack}{self._part}.npz"
        with files.replacing(file) as temporary, open(temporary, "wb") as stream:
            labels, indices = self._split.labels, self._indices
            np.savez(stream, images=images, labels=labels, indices=indices, right=result.flags)

    def _check(self, weights: Weights) -> list[Finding]:
        """What the classifier itself shows, on a few of the examples."""
        number = min(self._settings.num_checked, len(self._indices))
        if number < 2:
            return []
        few = self._split.take(data.balanced(self._split.labels, number, 0))
        return checks.examine(
            Partial(self._classifier.apply, weights.variables),
            data.to_unit(jnp.asarray(few.images)),
            jnp.asarray(few.labels),
            jax.random.key(self._seed),
            epsilon=self._settings.epsilon,
        )


def to_bytes(adversarial: np.ndarray, natural: np.ndarray, epsilon: float) -> np.ndarray:
    """The nearest images of 8 bits that are still within epsilon.

    Args:
      adversarial: [N, H, W, C] in [0, 1].
      natural: uint8, of the same shape.
      epsilon: radius of the ball; 0.031 is 7.9 grey levels, of which 7 can be used.
    """
    levels = math.floor(255 * epsilon + 1e-4)
    original = natural.astype(np.int16)
    rounded = np.rint(255 * adversarial.astype(np.float64)).astype(np.int16)
    clipped = original + np.clip(rounded - original, -levels, levels)
    return np.clip(clipped, 0, 255).astype(np.uint8)


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


@contextlib.contextmanager
def progress(text: str, total: int) -> Iterator[Any]:
    """A bar over examples; yields what is to be told how many are done."""
    with terminal.bar(total=total, desc=text, unit="image", leave=False) as bar:
        yield lambda count: bar.update(count - bar.n)
