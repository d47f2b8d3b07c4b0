"""The lines of results.jsonl and checks.jsonl: their parts, and writing them."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from flax import linen as nn
from ml_collections import ConfigDict

from cat_jax import data
from cat_jax.checks import Finding
from cat_jax.evaluation.results import Result
from cat_jax.experiment import labels, settings
from cat_jax.experiment.experiment import Experiment
from cat_jax.methods import NamedMethod
from cat_jax.networks import Classifier, MaskNet
from cat_jax.runtime.registry import Record, plugins_of, records_of
from cat_jax.storage import files, lines, run_folder
from cat_jax.weights.loading import Loaded, describe_short

Part = dict[str, Any]
CODE = ("device", "git_sha", "versions")  # What decides a finding beside weights and conditions.


def attacked_run(
    experiment: Experiment, dataset: data.Dataset, checkpoint: str, step: int, meta: Part
) -> Part:
    """What is attacked: a checkpoint of a run, and how it was trained.

    Args:
      experiment: of the run.
      dataset: its data.
      checkpoint: "best", "last", or one of their averages.
      step: number of updates.
      meta: of the checkpoint.
    """
    config = experiment.config
    return _attacked(experiment, dataset, trained=True) | {
        "method": config.method.name,
        "variant": config.variant,
        "seed": config.seed,
        "checkpoint": checkpoint,
        "step": step,
        "file": None,
        "conventions": config.conventions,
        "selection": config.selection if config.num_validation else "none",
        "num_devices": meta.get("num_devices"),
        "sync_batch_norm": config.sync_batch_norm,
        "training": settings.training_conventions(config),
    }


def attacked_file(experiment: Experiment, dataset: data.Dataset, loaded: Loaded) -> Part:
    """What is attacked: weights from a file, of whose training nothing is known."""
    names = (
        *("method", "variant", "seed", "checkpoint", "step", "conventions", "selection"),
        *("num_devices", "sync_batch_norm", "training"),
    )
    file = {"name": loaded.file.name, "sha256": loaded.digest, "states": loaded.fields}
    return _attacked(experiment, dataset, trained=False) | dict.fromkeys(names) | {"file": file}


def _attacked(experiment: Experiment, dataset: data.Dataset, *, trained: bool) -> Part:
    config = experiment.config
    records: list[Record] = [records_of(data.Source)[config.dataset]]
    records.append(records_of(Classifier)[config.classifier.name])
    if trained:
        records.append(records_of(MaskNet)[config.mask_net.name])
        records.append(records_of(NamedMethod)[config.method.name])
    return {
        "dataset": config.dataset,
        "data_sha": dataset.fingerprint[:12],
        "classifier": describe_short(experiment.classifier),
        "network": _fields(experiment.classifier),
        "plugins": plugins_of(*records),
    }


def _fields(network: nn.Module) -> Part:
    """What a network was made with, such as its depth, mean and std."""
    names = [field.name for field in dataclasses.fields(network)]
    values = {name: getattr(network, name) for name in names if name not in ("parent", "name")}
    plain: Part = json.loads(json.dumps(values, default=_name, allow_nan=False))
    return plain


def _name(value: Any) -> str:
    """A function or a type by its name, which does not change with the process."""
    return str(getattr(value, "__qualname__", value))


def images_of(config: ConfigDict, num_images: int, total: int) -> Part:
    """What decides a number beside the weights and the attack.

    Args:
      config: the resolved config.
      num_images: how many are evaluated.
      total: size of the test split.
    """
    subset = labels.balanced(config.test.subset_seed)
    return {
        "precision": "float32",
        "seed": config.seed,
        "num_examples": num_images,
        "subset": "all" if num_images == total else subset,
    }


def result_line(attacked: Part, conditions: Mapping[str, Any], result: Result) -> Part:
    """A line of results.jsonl.

    Args:
      attacked: of the weights.
      conditions: the attack's own, and the images that it was run on.
      result: of the attack.
    """
    outcome = {
        "accuracy": result.accuracy,
        "interval": list(result.interval),
        "num_attacked": result.num_attacked,
        "mean_queries": round(result.mean_queries, 1),
        "seconds": round(result.seconds, 2),
    }
    return {
        "attacked": dict(attacked),
        "conditions": dict(conditions),
        "outcome": outcome | dict(result.origin),
    }


def check_line(
    attacked: Part, conditions: Mapping[str, Any], finding: Finding, origin: Mapping[str, Any]
) -> Part:
    """A line of checks.jsonl; arguments as for `result_line`, `origin` as in `Result`."""
    outcome = {"passed": finding.passed, "text": finding.text}
    return {
        "attacked": dict(attacked),
        "conditions": {"check": finding.name} | dict(conditions),
        "outcome": outcome | dict(origin),
    }


def findings_of_same_code(
    workdir: pathlib.Path, examined: Part, origin: Mapping[str, Any]
) -> list[Finding]:
    """Findings in checks.jsonl of the same weights under the same conditions, by this code.

    Another commit, version or kind of device may find something else. So may a checkout with
    changes that are not committed.

    Args:
      workdir: folder of the run.
      examined: the first two parts of the lines, without the name of the check.
      origin: of the findings that would be made now, as `provenance.measurement` has it.
    """
    if str(origin["git_sha"]).endswith("+"):
        return []
    wanted, findings = lines.record_key(examined), []
    for line in lines.with_conditions(run_folder.read_lines(workdir, "checks")):
        conditions, outcome = dict(line["conditions"]), line["outcome"]
        check = conditions.pop("check")
        same_code = all(outcome.get(name) == origin[name] for name in CODE)
        is_same = lines.record_key({"attacked": line["attacked"], "conditions": conditions})
        if same_code and is_same == wanted:
            findings.append(Finding(check, outcome["passed"], outcome["text"]))
    return findings


def write(workdir: pathlib.Path, results: Sequence[Part], checks: Sequence[Part]) -> None:
    """Adds lines to results.jsonl and checks.jsonl; each replaces the line with its key.

    A check that says what its line says already leaves the line, with its date, as it was.
    """
    lines.replace(workdir / "results.jsonl", results)
    old = lines.with_conditions(files.read_json_lines(workdir / "checks.jsonl"))
    known = {lines.key(line): dict(line) for line in old}
    lines.replace(workdir / "checks.jsonl", [_unchanged(line, known) for line in checks])


def _unchanged(line: Part, known: Mapping[str, Part]) -> Part:
    before = known.get(lines.key(line))
    names = ("passed", "text")
    if before and all(before["outcome"].get(n) == line["outcome"][n] for n in names):
        return before
    return line
