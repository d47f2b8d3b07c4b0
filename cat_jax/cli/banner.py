"""The lines that a run prints when it starts."""

import pathlib
from collections.abc import Mapping

import jax
from ml_collections import ConfigDict

from cat_jax import __version__, data, weights
from cat_jax.experiment.experiment import Experiment
from cat_jax.experiment.limits import radius_text
from cat_jax.weights.loading import Loaded


def banner(
    experiment: Experiment, dataset: data.Dataset, workdir: pathlib.Path, *, trains: bool
) -> str:
    """Describes the run before it starts, one line for each part.

    Args:
      experiment: parts of the run.
      dataset: data of the run.
      workdir: folder of the run.
      trains: whether the run trains, or only evaluates.
    """
    config = experiment.config
    num_train = dataset.spec.num_train - config.num_validation
    lines = {
        "data": f"{_data(experiment, dataset)}: {num_train} images to train on, "
        f"{config.num_validation} to validate, {len(dataset.test.labels)} to test",
        "networks": f"{config.classifier.name}, {config.mask_net.name}",
        "method": f"{config.method.name}, conventions {config.conventions}, seed {config.seed}; "
        f"{_ball(config.attack)}, {config.attack.num_steps} steps of attack",
        "training": f"{experiment.num_steps} steps of {config.batch_size} images, "
        f"{experiment.num_steps * config.batch_size / num_train:.3g} epochs",
        **_evaluation(experiment, workdir),
    }
    shown = {name: text for name, text in lines.items() if trains or name != "training"}
    return _lines(f"{config.dataset}:{config.variant}", shown)


def banner_of_file(
    experiment: Experiment, dataset: data.Dataset, workdir: pathlib.Path, loaded: Loaded
) -> str:
    """`banner` for weights from a file: of their training nothing is known."""
    network = loaded.network
    mean, std = getattr(network, "mean", ()), getattr(network, "std", ())
    lines = {
        "data": f"{_data(experiment, dataset)}: {len(dataset.test.labels)} images to test",
        "network": f"{weights.describe(network)}, "
        + (f"with mean {list(mean)} and std {list(std)}" if mean else "images in [0, 1]"),
        "weights": f"{loaded.file}, SHA-256 {loaded.digest[:12]}",
        **_evaluation(experiment, workdir),
    }
    title = f"weights {loaded.file.name} ({weights.describe_short(network)}) on "
    return _lines(title + experiment.config.dataset, lines)


def _lines(title: str, parts: Mapping[str, str]) -> str:
    lines = (f"  {name:<9} {text}" for name, text in parts.items())
    return "\n".join([f"cat_jax {__version__}: {title}", *lines])


def _data(experiment: Experiment, dataset: data.Dataset) -> str:
    config, size = experiment.config, "x".join(map(str, dataset.spec.image_shape))
    name = f"own, from {config.data_dir}" if config.dataset == "own" else config.dataset
    return f"{name}, {dataset.num_classes} classes, {size}"


def _evaluation(experiment: Experiment, workdir: pathlib.Path) -> dict[str, str]:
    """The attacks, the devices, and where the results go."""
    devices, names = jax.devices(), [named.name for named in experiment.attacks]
    kind, processes = devices[0].device_kind, jax.process_count()
    return {
        "attacks": f"{', '.join(names) or 'none'}; {_ball(experiment.config.test)}",
        "devices": f"{len(devices)} ({kind}), {processes} process(es)",
        "files": f"{workdir}/, in the end report.html",
    }


def _ball(section: ConfigDict) -> str:
    """ "epsilon 8/255 in linf", of a section of the config."""
    return f"epsilon {radius_text(section.epsilon)} in {section.norm}"
