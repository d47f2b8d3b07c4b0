"""The lines of results.jsonl and checks.jsonl: their parts, and writing them."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from flax import linen as nn

from cat_jax import data
from cat_jax.evaluation.checks import Finding
from cat_jax.evaluation.results import Result
from cat_jax.experiment import labels, settings
from cat_jax.experiment.experiment import Experiment
from cat_jax.experiment.method import method_record
from cat_jax.networks import Classifier, MaskNet
from cat_jax.runtime.registry import Record, plugins_of, records_of
from cat_jax.storage import lines
from cat_jax.storage.checkpoint import Checkpoint
from cat_jax.storage.run_folder import RunFolder
from cat_jax.weights import Loaded, describe_short

Part = dict[str, Any]
CODE = ("device", "git_sha", "versions")  # Decide a finding, with weights and conditions.


def attacked_run(
    experiment: Experiment, dataset: data.Dataset, name: str, checkpoint: Checkpoint
) -> Part:
    """The first part of a line for a checkpoint of a run: its data, network and training.

    Args:
      experiment: experiment of the run.
      dataset: data of the run.
      name: "best", "last", or one of their averages.
      checkpoint: the checkpoint with this name.
    """
    config = experiment.config
    return _attacked(experiment, dataset, trained=True) | {
        "method": config.method.name,
        "variant": config.variant,
        "seed": config.seed,
        "checkpoint": name,
        "step": checkpoint.step,
        "file": None,
        "conventions": config.conventions,
        "selection": settings.selection(config),
        "num_devices": checkpoint.meta.get("num_devices"),
        "sync_batch_norm": config.sync_batch_norm,
        "training": settings.training_conventions(config),
        "extra_data": _extra_data(experiment),
    }


def _extra_data(experiment: Experiment) -> Part | None:
    """Share and fingerprint of the images beside the training split; None without any."""
    extra = experiment.config.extra_data
    return {"share": extra.share, "sha": extra.fingerprint} if extra.path else None


def attacked_file(experiment: Experiment, dataset: data.Dataset, loaded: Loaded) -> Part:
    """The first part of a line for weights from a file, whose training is unknown."""
    names = (
        *("method", "variant", "seed", "checkpoint", "step", "conventions", "selection"),
        *("num_devices", "sync_batch_norm", "training", "extra_data"),
    )
    file = {"name": loaded.file.name, "sha256": loaded.digest, "states": loaded.fields}
    return _attacked(experiment, dataset, trained=False) | dict.fromkeys(names) | {"file": file}


def _attacked(experiment: Experiment, dataset: data.Dataset, *, trained: bool) -> Part:
    config = experiment.config
    records: list[Record] = [data.find_source(config.dataset)]
    records.append(records_of(Classifier)[config.classifier.name])
    if trained:
        records.append(records_of(MaskNet)[config.mask_net.name])
        records.append(method_record(config.method.name))
    return {
        "dataset": config.dataset,
        "data_sha": dataset.fingerprint[:12],
        "classifier": describe_short(experiment.classifier),
        "network": _fields(experiment.classifier),
        "plugins": plugins_of(*records),
    }


def _fields(network: nn.Module) -> Part:
    """Arguments of the constructor of a network, such as depth, mean and std."""
    names = [field.name for field in dataclasses.fields(network)]
    values = {name: getattr(network, name) for name in names if name not in ("parent", "name")}
    plain: Part = json.loads(json.dumps(values, default=_name, allow_nan=False))
    return plain


def _name(value: Any) -> str:
    """The name of a function or type, which is the same in every process."""
    return str(getattr(value, "__qualname__", value))


def images_of(experiment: Experiment, num_images: int, total: int) -> Part:
    """Conditions of a number besides the weights and the attack.

    Args:
      experiment: experiment of the run.
      num_images: number of images evaluated.
      total: size of the test split.
    """
    config = experiment.config
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
      attacked: description of the weights.
      conditions: conditions of the attack, and the images it ran on.
      result: result of the attack.
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
    folder: RunFolder, examined: Part, origin: Mapping[str, Any]
) -> list[Finding]:
    """Findings in checks.jsonl for the same weights, conditions and code.

    It returns none for another commit, version or kind of device, or for a checkout with
    uncommitted changes, because their findings may differ.

    Args:
      folder: folder of the run.
      examined: first two parts of the lines, without the name of the check.
      origin: origin of new findings, as `provenance.measurement` returns it.
    """
    if str(origin["git_sha"]).endswith("+"):
        return []
    key, findings = lines.record_key(examined), []
    for line in folder.read_lines("checks"):
        conditions, outcome = dict(line["conditions"]), line["outcome"]
        check = conditions.pop("check")
        same_code = all(outcome.get(name) == origin[name] for name in CODE)
        own_key = lines.record_key({"attacked": line["attacked"], "conditions": conditions})
        if same_code and own_key == key:
            findings.append(Finding(check, outcome["passed"], outcome["text"]))
    return findings


def write(folder: RunFolder, results: Sequence[Part], checks: Sequence[Part]) -> None:
    """Adds lines to results.jsonl and checks.jsonl; each replaces the line with its key.

    A check whose finding has not changed keeps its line and its date.
    """
    lines.replace(folder.lines_file("results"), results)
    old = folder.read_lines("checks")
    by_key = {lines.key(line): dict(line) for line in old}
    lines.replace(folder.lines_file("checks"), [_unchanged(line, by_key) for line in checks])


def _unchanged(line: Part, earlier: Mapping[str, Part]) -> Part:
    """The earlier line with this key if its finding is equal, else `line`."""
    before = earlier.get(lines.key(line))
    names = ("passed", "text")
    if before and all(before["outcome"].get(n) == line["outcome"][n] for n in names):
        return before
    return line
