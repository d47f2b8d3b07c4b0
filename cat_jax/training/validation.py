"""Measurements during training: natural and robust accuracy, and signs of failure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from cat_jax import data
from cat_jax.attacks.named import NamedAttack
from cat_jax.evaluation import checks
from cat_jax.evaluation.evaluator import Evaluator
from cat_jax.experiment.evaluation_attacks import NATURAL, validation_attacks
from cat_jax.experiment.experiment import Experiment
from cat_jax.step.state import TrainState, variables_of, weights_of
from cat_jax.types import PyTree

NAMES = ("natural", "robust", "fgsm", "zero_gradients", "answers", "mask")


class Validator:
    """Measures a state on the validation split, or on the test split with config.selection=test."""

    def __init__(
        self,
        experiment: Experiment,
        dataset: data.Dataset,
        held_out: data.Split,
        devices: Sequence[jax.Device],
    ) -> None:
        config = experiment.config
        self.split = dataset.test if config.selection == "test" else held_out
        self._classifier = experiment.classifier
        self._num_classes = dataset.spec.num_classes
        self._warmup_epochs = config.attack.warmup_epochs
        self._trains_adversarially = experiment.method.classifier_views != ("natural",)
        self._attack, self._probe = validation_attacks(config)
        self._batch_size = config.test.batch_size
        key = jax.random.key(config.seed)
        self._evaluator = Evaluator(
            experiment.classifier.apply, key, config.test.batch_size, devices
        )

    def __call__(self, state: TrainState) -> dict[str, float]:
        """The scores of a state, as metrics.jsonl names them.

        "validation_natural" and "validation_robust", with the suffix "_average" for the average of
        the classifier; for the classifier itself also "validation_fgsm",
        "validation_zero_gradients" and "validation_answers", the number of predicted classes.
        """
        scores = {}
        if jax.process_count() > 1:
            state = jax.device_get(state)
        for suffix, variables in weights_of(state).items():
            scores[f"validation_natural{suffix}"] = self._accuracy(variables, NATURAL)
            scores[f"validation_robust{suffix}"] = self._accuracy(variables, self._attack)
        variables = variables_of(state.classifier)
        scores["validation_fgsm"] = self._accuracy(variables, self._probe)
        batch = self.split.first(self._batch_size)
        logits_fn = Partial(self._classifier.apply, variables)
        images = data.to_unit(jnp.asarray(batch.images))
        zero = checks.zero_gradients(logits_fn, images, jnp.asarray(batch.labels))
        scores["validation_zero_gradients"] = float(zero)
        scores["validation_answers"] = checks.num_answers(logits_fn, images)
        return scores

    def warnings(self, lines: Sequence[Mapping[str, Any]]) -> list[str]:
        """Warnings of the last validation in the lines of metrics.jsonl, given the earlier ones."""
        history = [
            {"epoch": line["epoch"], **{name: line[f"validation_{name}"] for name in NAMES}}
            for line in lines
            if all(f"validation_{name}" in line for name in NAMES)
        ]
        labels = self.split.labels
        return checks.warnings(
            history,
            num_examples=len(labels),
            num_classes=self._num_classes,
            majority=float(np.bincount(labels).max() / len(labels)),
            adversarial=self._trains_adversarially,
            warmup_epochs=self._warmup_epochs,
        )

    def _accuracy(self, variables: PyTree, attack: NamedAttack) -> float:
        return self._evaluator(variables, attack, self.split).accuracy


def totals(scores: Mapping[str, float], chosen_by: str) -> Iterator[tuple[str, float]]:
    """(suffix, score that chooses best/) of the classifier and of its average.

    Args:
      scores: scores that a `Validator` returns.
      chosen_by: "sum" of natural and robust accuracy, as in CAT's code, or "robust"
        accuracy alone, the early stopping of Rice et al. (2020).
    """
    for name, robust in scores.items():
        prefix, is_robust, suffix = name.partition("validation_robust")
        if is_robust and not prefix:
            natural = scores[f"validation_natural{suffix}"] if chosen_by == "sum" else 0.0
            yield suffix, natural + robust


def describe(scores: Mapping[str, float]) -> str:
    """Such as "natural 88.2%, PGD 25.7%, FGSM 29.2%"; accuracies of an average come last."""
    texts = []
    for suffix, prefix in (("", ""), ("_average", "average: ")):
        names = {"natural": f"{prefix}natural", "robust": "PGD", "fgsm": "FGSM"}
        accuracies = {text: scores.get(f"validation_{n}{suffix}") for n, text in names.items()}
        texts += [f"{text} {x:.1%}" for text, x in accuracies.items() if x is not None]
    return ", ".join(texts)
