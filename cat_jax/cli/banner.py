"""The lines that a run prints when it starts."""

import pathlib

import jax

from cat_jax import __version__, data
from cat_jax.experiment.experiment import Experiment
from cat_jax.experiment.limits import radius_text

INTERRUPTED = 130  # Exit status after Ctrl-C, as shells have it: what is done is kept.


def banner(
    experiment: Experiment, dataset: data.Dataset, workdir: pathlib.Path, *, trains: bool
) -> str:
    """What will run, one line for each thing.

    Args:
      experiment: of the run.
      dataset: its data.
      workdir: where its files go.
      trains: whether it trains, or only evaluates.
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
        f"epsilon {radius_text(config.attack.epsilon)}, {config.attack.num_steps} steps of attack",
        "training": f"{experiment.num_steps} steps of {config.batch_size} images, "
        f"{experiment.num_steps * config.batch_size / num_train:.3g} epochs",
        "attacks": f"{', '.join(names) or 'none'}; epsilon {radius_text(config.test.epsilon)}",
        "devices": f"{len(devices)} ({devices[0].device_kind}), {jax.process_count()} process(es)",
        "files": f"{workdir}/, in the end report.html",
    }
    shown = {name: text for name, text in lines.items() if trains or name != "training"}
    title = f"cat_jax {__version__}: {config.dataset}:{config.variant}"
    return "\n".join([title, *(f"  {name:<9} {text}" for name, text in shown.items())])
