"""Attacks and checks each set of weights as a config asks."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from cat_jax import data
from cat_jax.attacks.named import NamedAttack
from cat_jax.evaluation import checks, classifier_checks, result_lines
from cat_jax.evaluation.attack_progress import AttackProgress
from cat_jax.evaluation.budget import attacks_stay_in_ball
from cat_jax.evaluation.evaluator import Evaluator
from cat_jax.evaluation.examined import Examined, Weights
from cat_jax.evaluation.other_images import corruptions
from cat_jax.evaluation.result_lines import Part
from cat_jax.evaluation.results import Place, Result, before
from cat_jax.evaluation.transfer import Source, Transfer
from cat_jax.experiment import labels, settings
from cat_jax.experiment.experiment import Experiment
from cat_jax.runtime import processes, terminal
from cat_jax.storage import lines, provenance
from cat_jax.storage.run_folder import RunFolder

CURVE_IMAGES = 1000  # For accuracy against epsilon: intervals of at most 3 points to each side.


class Examination:
    """Runs all attacks of a config on sets of weights, and checks these for false robustness."""

    def __init__(
        self,
        experiment: Experiment,
        dataset: data.Dataset,
        folder: RunFolder,
        devices: Sequence[jax.Device],
        source: Source | None = None,
    ) -> None:
        config, classes = experiment.config, dataset.test.labels
        self.attacks = experiment.attacks
        self._seed = config.seed
        self._settings, self._folder = config.test, folder
        self._indices = data.balanced(classes, config.test.num_examples, config.test.subset_seed)
        self._test, self._split = dataset.test, dataset.test.take(self._indices)
        self._experiment, self._config = experiment, settings.fingerprint(config)
        folder.write_evaluation_config(self._config, settings.as_dict(config))
        key = jax.random.key(config.seed)
        self._evaluator = Evaluator(
            experiment.classifier.apply, key, config.test.batch_size, devices
        )
        arguments = (config.seed, config.test.batch_size, devices)
        self._transfer = None if source is None else Transfer(source, *arguments)
        self._progress = AttackProgress()
        self._device = devices[0].device_kind
        size = min(CURVE_IMAGES, len(self._indices))
        self._curve_indices = data.balanced(classes, size, config.test.subset_seed)

    def __call__(self, weights: Weights) -> Examined:
        """The lines of results and checks for one set of weights."""
        if not self.attacks:
            return Examined([], [])
        results: dict[str, Result] = {}
        result_parts = []
        for named in self.attacks:
            result = results[named.name] = self._attack(weights, named, before(named, results))
            result_parts.append(self._line(weights, result.conditions, result))
            if result.adversarial is not None and result.adversarial.dtype == np.uint8:
                result_parts.append(self._rounded(weights, named))
        for result in self._measure_transfer(weights):
            results[result.attack] = result
            result_parts.append(self._line(weights, result.conditions, result))
        for named, radii in self._experiment.curves:
            result_parts += self._measure_curve(weights, named, radii)
        result_parts += self._measure_corruptions(weights)
        return Examined(result_parts, self._checks(weights, list(results.values())))

    def _attack(self, weights: Weights, named: NamedAttack, previous: Result | None) -> Result:
        is_natural = named.attack is None and not named.worst_of
        keep = "none" if is_natural else self._settings.save_adversarial
        if not named.conditions.get("clipped", True):  # 8 bits cannot hold pixels outside [0, 1].
            keep = keep.replace("uint8", "float32")
        place = self._place(weights, named.conditions)
        if keep == "uint8":  # Because the file holds the rounded images.
            place = place._replace(images=self._place(weights, _round(named.conditions)).images)
        total = len(self._split.labels)
        num_attacked = total if previous is None else int(previous.flags.sum())
        text = f"{weights.name} {named.name}"
        with self._progress.bar(text, named.conditions, total, num_attacked) as on_batch:
            return self._evaluator(
                weights.variables,
                named,
                self._split,
                indices=self._indices,
                before=previous,
                place=place,
                keep=keep,
                on_batch=on_batch,
            )

    def _rounded(self, weights: Weights, named: NamedAttack) -> Part:
        """The line for the images of an attack after rounding to 8 bits, as on disk."""
        conditions = _round(named.conditions)
        place = self._place(weights, conditions)
        images = processes.from_first(lambda: np.load(str(place.images)))
        text, total = f"{weights.name} {conditions['attack']}", len(images)
        with self._progress.bar(text, {}, total, total) as on_batch:
            result = self._evaluator(
                weights.variables,
                NamedAttack(conditions["attack"], None),
                self._split._replace(images=images),
                indices=self._indices,
                place=place,
                on_batch=on_batch,
            )
        return self._line(weights, conditions, result)

    def _measure_transfer(self, weights: Weights) -> Iterator[Result]:
        """The results of the images that each attack finds on the source."""
        if self._transfer is None:
            return
        for named in self.attacks:
            if named.attack is not None:
                place = self._place(weights, self._transfer.conditions(named))
                arguments = (named, self._split, self._indices, place)
                yield self._transfer(self._evaluator, weights.variables, *arguments)

    def _measure_curve(
        self, weights: Weights, named: NamedAttack, radii: Sequence[float]
    ) -> list[Part]:
        """The lines for accuracy against epsilon, on at most CURVE_IMAGES images."""
        size = len(self._curve_indices)
        conditions = [point.conditions for point in named.along(radii)]
        places = {c["epsilon"]: self._place(weights, c, size) for c in conditions}
        text = f"{weights.name} {named.name}"
        total = size if named.is_minimum_norm else size * len(conditions)
        with self._progress.bar(text, named.conditions, total, total) as on_batch:
            results = self._evaluator.curve(
                weights.variables,
                named,
                self._test.take(self._curve_indices),
                radii,
                indices=self._curve_indices,
                places=places,
                on_batch=on_batch,
            )
        return [self._line(weights, r.conditions, r) for r in results.values()]

    def _measure_corruptions(self, weights: Weights) -> list[Part]:
        """The lines for corrupted images, if the evaluation includes them."""
        if not self._experiment.corruptions:
            return []
        number = len(data.KINDS) * len(data.SEVERITIES)
        arguments = (self._evaluator, weights.variables, self._split, self._indices, self._seed)
        parts: list[Part] = []
        with terminal.Progress(f"{weights.name} corruptions", number, "set") as progress:
            for result in corruptions(*arguments, functools.partial(self._place, weights)):
                parts.append(self._line(weights, result.conditions, result))
                progress.update(len(parts))
        return parts

    def _common(self, num_images: int) -> Part:
        return result_lines.images_of(self._experiment, num_images, len(self._test.labels))

    def _line(self, weights: Weights, conditions: Mapping[str, Any], result: Result) -> Part:
        conditions = dict(conditions) | self._common(len(result.flags))
        return result_lines.result_line(weights.attacked, conditions, result)

    def _place(
        self, weights: Weights, conditions: Mapping[str, Any], num_images: int | None = None
    ) -> Place:
        common = self._common(num_images or len(self._indices))
        line = {"attacked": weights.attacked, "conditions": dict(conditions) | common}
        stem, key = lines.record_stem(line), lines.record_key(line)
        files = self._folder.record_file(stem), key, self._folder.images_file(stem)
        return Place(*files, self._config)

    def _checks(self, weights: Weights, results: Sequence[Result]) -> list[Part]:
        """The lines of checks that compare attacks, and of checks of the classifier itself."""
        origin = provenance.measurement(self._device) | {"config": self._config}
        flags = {result.attack: result.flags for result in results}
        conditions = {result.attack: result.conditions for result in results}
        compared = [
            (self._compared(weights, [conditions[name] for name in finding.attacks]), finding)
            for finding in (attacks_stay_in_ball(results), *checks.compare(flags, conditions))
        ]
        common = self._common(len(self._indices))
        arguments = (self._experiment, self._split, self._folder, weights, common, origin)
        examined = classifier_checks.examine(*arguments)
        return [
            result_lines.check_line(weights.attacked, conditions | common, finding, origin)
            for conditions, finding in [*compared, *examined]
        ]

    def _compared(self, weights: Weights, attacks: Sequence[Mapping[str, Any]]) -> Part:
        """Labels of the attacks that a check compares, and names of their records."""
        stems = [self._place(weights, conditions).record.stem for conditions in attacks]
        return {"attacks": dict(zip(labels.attacks(attacks), stems, strict=True))}


def _round(conditions: Mapping[str, Any]) -> dict[str, Any]:
    return dict(conditions) | {"attack": f"{conditions['attack']}_uint8", "pixels": "uint8"}
