"""The lines that a run prints when it starts."""

import pathlib

import jax
from ml_collections import ConfigDict

from cat_jax import __version__, data
from cat_jax.experiment.experiment import Experiment
from cat_jax.experiment.limits import radius_text

INTERRUPTED = 130  # Exit status after Ctrl-C, as shells have it: what is done is kept.


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
    config, devices = experiment.config, jax.devices()
    num_train = dataset.spec.num_train - config.num_validation
    size = "x".join(map(str, dataset.spec.image_shape))
    name = f"own, from {config.data_dir}" if config.dataset == "own" else config.dataset
    names = [named.name for named in experiment.attacks]
    lines = {
        "data": f"{name}, {dataset.num_classes} classes, {size}: {num_train} images to "
        f"train on, {config.num_validation} to validate, {len(dataset.test.labels)} to test",
        "networks": f"{config.classifier.name}, {config.mask_net.name}",
        "method": f"{config.method.name}, conventions {config.conventions}, seed {config.seed}; "
        f"{_ball(config.attack)}, {config.attack.num_steps} steps of attack",
        "training": f"{experiment.num_steps} steps of {config.batch_size} images, "
        f"{experiment.num_steps * config.batch_size / num_train:.3g} epochs",
        "attacks": f"{', '.join(names) or 'none'}; {_ball(config.test)}",
        "devices": f"{len(devices)} ({devices[0].device_kind}), {jax.process_count()} process(es)",
        "files": f"{workdir}/, in the end report.html",
    }
    shown = {name: text for name, text in lines.items() if trains or name != "training"}
    title = f"cat_jax {__version__}: {config.dataset}:{config.variant}"
    return "\n".join([title, *(f"  {name:<9} {text}" for name, text in shown.items())])


def _ball(section: ConfigDict) -> str:
    """ "epsilon 8/255 in linf", of a section of the config."""
    return f"epsilon {radius_text(section.epsilon)} in {section.norm}"
