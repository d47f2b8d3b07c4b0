"""Checks of a classifier itself, beside those that compare attacks."""

import math

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from cat_jax import data
from cat_jax.evaluation import checks, result_lines
from cat_jax.evaluation.checks import Finding
from cat_jax.evaluation.examined import Weights
from cat_jax.evaluation.result_lines import Part
from cat_jax.experiment.experiment import Experiment
from cat_jax.runtime import processes, terminal
from cat_jax.storage.run_folder import RunFolder


def examine(
    experiment: Experiment,
    split: data.Split,
    folder: RunFolder,
    weights: Weights,
    common: Part,
    origin: Part,
) -> list[tuple[Part, Finding]]:
    """Checks the classifier itself on a few images: (conditions, finding) of each check.

    Args:
      experiment: experiment of the run.
      split: images of the evaluation.
      folder: folder of the run, whose findings for the same code are used again.
      weights: weights of the classifier.
      common: conditions of all lines, as `images_of` returns them.
      origin: origin of new findings, as `provenance.measurement` returns it.
    """
    settings = experiment.config.test
    number = min(settings.num_checked, len(split.labels))
    if number < 2:
        return []
    sample = split.take(data.balanced(split.labels, number, 0))
    # The checks attack in the largest L-infinity ball inside the ball of the tests.
    size = sample.images[0].size
    inside = {"linf": 1.0, "l2": math.sqrt(size), "l1": size}[settings.norm]
    epsilon = min(settings.epsilon / inside, 1.0)
    conditions = {"norm": "linf", "epsilon": epsilon, "num_checked": number}
    line = {"attacked": weights.attacked, "conditions": conditions | common}
    findings = processes.from_first(
        lambda: result_lines.findings_of_same_code(folder, line, origin)
    )
    if not findings:
        with terminal.Progress(f"{weights.name} checks", 1, "batch"):
            findings = checks.examine(
                Partial(experiment.classifier.apply, weights.variables),
                data.to_unit(jnp.asarray(sample.images)),
                jnp.asarray(sample.labels),
                jax.random.key(experiment.config.seed),
                epsilon=epsilon,
            )
    return [(conditions, finding) for finding in findings]
