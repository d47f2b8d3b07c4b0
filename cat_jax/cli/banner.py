"""The lines that a run prints when it starts."""

import os
import textwrap
from collections.abc import Mapping

import jax
from ml_collections import ConfigDict

from cat_jax import __version__, data, weights
from cat_jax.experiment import labels
from cat_jax.experiment.experiment import Experiment
from cat_jax.runtime import terminal
from cat_jax.storage.run_folder import RunFolder

INDENT = 16  # Characters before the text of a line.


def banner(
    experiment: Experiment, dataset: data.Dataset, folder: RunFolder, *, trains: bool
) -> str:
    """Describes a run before it starts, one line for each part.

    Args:
      experiment: objects of the run.
      dataset: images and labels of the run.
      folder: folder of the run.
      trains: whether the run trains, or only evaluates.
    """
    config = experiment.config
    num_train = dataset.spec.num_train - config.num_validation
    has_mask = config.mask_net.name != "OnesMask"
    epochs = experiment.num_steps * config.batch_size / num_train
    attack = config.attack
    parts = {
        "data": f"{_data(experiment, dataset)}; {num_train} training, {config.num_validation} "
        f"validation and {len(dataset.test.labels)} test images"
        + (f"; {extra}" if (extra := labels.extra_data(config)) else ""),
        "networks": f"classifier {config.classifier.name}"
        + (f", mask network {config.mask_net.name}" if has_mask else ""),
        "method": f"{config.variant}, {config.conventions} conventions, seed {config.seed}",
        "threat model": _threat(config),
        "training": f"{experiment.num_steps} steps of {config.batch_size} images "
        f"({epochs:.3g} epochs)"
        + (
            f"; {attack.num_steps} attack steps of {float(attack.step_size):.3g}"
            if _is_adversarial(config)
            else ""
        ),
        **_evaluation(experiment, folder),
    }
    shown = {name: text for name, text in parts.items() if trains or name != "training"}
    verb = "train and evaluate" if trains else "evaluate"
    return _lines(f"{verb} {config.dataset}:{config.variant}", shown)


def banner_of_file(
    experiment: Experiment, dataset: data.Dataset, folder: RunFolder, loaded: weights.Loaded
) -> str:
    """`banner` for weights from a file, whose training is unknown."""
    network, norm = loaded.network, labels.NORMS[experiment.config.test.norm]
    mean, std = getattr(network, "mean", ()), getattr(network, "std", ())
    parts = {
        "data": f"{_data(experiment, dataset)}; {len(dataset.test.labels)} test images",
        "network": f"{weights.describe(network)}, "
        + (f"mean {list(mean)}, std {list(std)}" if mean else "images in [0, 1]"),
        "weights": f"{loaded.file}, SHA-256 {loaded.digest[:12]}",
        "threat model": f"{norm}, test radius {labels.radius(experiment.config.test.epsilon)}",
        **_evaluation(experiment, folder),
    }
    title = f"evaluate weights {loaded.file.name} ({weights.describe_short(network)}) on "
    return _lines(title + experiment.config.dataset, parts)


def _lines(title: str, parts: Mapping[str, str]) -> str:
    width, indent = terminal.width(), " " * INDENT
    lines = [
        textwrap.fill(
            text,
            width,
            initial_indent=f"  {name:<{INDENT - 2}}",
            subsequent_indent=indent,
            break_long_words=False,  # So that a path can be copied.
            break_on_hyphens=False,
        )
        for name, text in parts.items()
    ]
    return "\n".join([f"cat_jax {__version__}: {title}", *lines])


def _data(experiment: Experiment, dataset: data.Dataset) -> str:
    config, size = experiment.config, "x".join(map(str, dataset.spec.image_shape))
    name = f"own, from {config.data_dir}" if config.dataset == "own" else config.dataset
    return f"{name}, {dataset.num_classes} classes, {size}"


def _is_adversarial(config: ConfigDict) -> bool:
    return bool(config.method.name != "standard")


def _threat(config: ConfigDict) -> str:
    """Such as "L-infinity, training radius 0.4, test radius 0.3"."""
    train, test = (labels.NORMS[section.norm] for section in (config.attack, config.test))
    radii = [labels.radius(section.epsilon) for section in (config.attack, config.test)]
    if not _is_adversarial(config):
        return f"{test}, test radius {radii[1]}; training without attack"
    if train != test:
        return f"training: {train}, radius {radii[0]}; test: {test}, radius {radii[1]}"
    return f"{test}, training radius {radii[0]}, test radius {radii[1]}"


def _evaluation(experiment: Experiment, folder: RunFolder) -> dict[str, str]:
    """The attacks, the hardware, and the folder of the results."""
    names = [named.name for named in experiment.attacks]
    names += ["curve"] if experiment.curves else []
    names += ["corruptions"] if experiment.corruptions else []
    return {
        "evaluation": ", ".join(names) or "none",
        "hardware": _hardware(),
        "workdir": str(folder),
    }


def _hardware() -> str:
    devices, num_processes = jax.devices(), jax.process_count()
    kind, number = devices[0].device_kind, len(devices)
    text = f"{number} x {kind}"
    if kind == "cpu":
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        text = f"CPU, {cores} core{'s' * (cores != 1)}"
        text += f" as {number} devices" if number > 1 else ""
    return text + (f"; {num_processes} processes" if num_processes > 1 else "")
