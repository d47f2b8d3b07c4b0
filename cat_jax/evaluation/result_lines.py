"""The lines of results.jsonl and checks.jsonl: what they say, and putting them there."""

import pathlib
from collections.abc import Sequence
from typing import Any

from cat_jax import data
from cat_jax.checks import Finding
from cat_jax.evaluation.results import Result
from cat_jax.experiment import settings
from cat_jax.experiment.experiment import Experiment
from cat_jax.storage import provenance, run_folder


def write(
    workdir: pathlib.Path,
    of_checkpoint: dict[str, Any],
    results: Sequence[Result],
    findings: Sequence[Finding],
) -> None:
    """Puts what was found of a checkpoint in place of what was there of it.

    Args:
      workdir: of the run.
      of_checkpoint: what its lines have in common: "checkpoint", "step" and the rest.
      results: of its attacks.
      findings: of its checks.
    """
    lines = [of_checkpoint | line(result) for result in results]
    by = ("checkpoint", "attack", "num_examples")
    run_folder.replace_lines(workdir / "results.jsonl", lines, *by)
    named = {name: of_checkpoint[name] for name in ("checkpoint", "step")}
    lines = [named | finding._asdict() for finding in findings]
    run_folder.replace_lines(workdir / "checks.jsonl", lines, "checkpoint", "name")


def describe(
    experiment: Experiment, dataset: data.Dataset, num_devices: int | None
) -> dict[str, Any]:
    """What the lines of a run in results.jsonl have in common.

    Args:
      experiment: that was evaluated.
      dataset: its data.
      num_devices: that the last steps were made on, where that is known.
    """
    config = experiment.config
    return {
        "dataset": config.dataset,
        "classifier": config.classifier.name,
        "method": config.method.name,
        "variant": config.variant,
        "seed": config.seed,
        "num_devices": num_devices,
        "sync_batch_norm": config.sync_batch_norm,
        "conventions": config.conventions,
        "selection": config.selection if config.num_validation else "none",
        "data_sha": dataset.fingerprint[:12],
        "config_sha": settings.fingerprint(config),
        "git_sha": provenance.git_sha(),
        "versions": provenance.versions(),
    }


def line(result: Result) -> dict[str, Any]:
    """What is a result's own in its line of results.jsonl."""
    return {
        "attack": result.attack,
        "accuracy": result.accuracy,
        "num_examples": len(result.flags),
        "interval": result.interval,
        "num_attacked": result.num_attacked,
        "mean_queries": round(result.mean_queries, 1),
        "seconds": round(result.seconds, 2),
    }
