"""The modes of `python -m cat_jax.main`: train, evaluate, evaluate a file, verify, sweep.

A config travels one way: `prepare` resolves it and builds an experiment from it, training and
evaluation take the experiment, and the commands print their results.
"""

import logging
import pathlib
from collections.abc import Collection, Sequence

import jax
from ml_collections import ConfigDict

from cat_jax import data, weights
from cat_jax.cli import banner, sweep
from cat_jax.cli.prepared import prepare
from cat_jax.errors import UsageError
from cat_jax.evaluation import robustness
from cat_jax.paper import references
from cat_jax.report import grids, seed_means, tables
from cat_jax.runtime import processes
from cat_jax.storage import checkpoint
from cat_jax.storage import verify as verification
from cat_jax.training import loop, trace

logger = logging.getLogger(__name__)


def train(
    config: ConfigDict | None,
    workdir: pathlib.Path,
    command: str = "",
    *,
    profile: str | None = None,
) -> bool:
    """Trains or resumes a run, then attacks its checkpoints and writes report.html.

    Args:
      config: config of the run; None: the config in the workdir.
      workdir: folder of the run.
      command: command line, for the report.
      profile: "START:STOP", steps of which the run writes a JAX trace.

    Returns:
      False if a signal stopped the training; its state is saved.

    Raises:
      UsageError: if the user has to change something.
    """
    steps = trace.read_steps(profile) if profile else range(0)
    run = prepare(config, workdir)
    if path := run.experiment.config.extra_data.path:
        data.extra_images.load(path, run.dataset.spec)  # To refuse others before it writes.
    with run.locked():
        last, num_steps = run.folder.checkpoint("last"), run.experiment.num_steps
        processes.from_first(lambda: checkpoint.refuse_fewer_steps(last, num_steps))
        run.write_config()
        logger.info("%s", banner.banner(run.experiment, run.dataset, run.folder, trains=True))
        finished = loop.train(run.experiment, run.dataset, run.folder, jax.devices(), steps)
        if finished:
            run.finish(command, run.attack_checkpoints())
        else:
            again = f": {command}" if command else "."
            logger.info("To resume, run the same command again%s", again)
            run.write_page(command)
    return finished


def evaluate(
    config: ConfigDict | None,
    workdir: pathlib.Path,
    command: str = "",
    *,
    transfer_from: Sequence[str] = (),
) -> None:
    """Attacks the checkpoints of a run and writes report.html; other arguments as for `train`.

    Args:
      config, workdir, command: as for `train`.
      transfer_from: runs or files of weights on whose mean logits each attack also looks for
        images.

    Raises:
      UsageError: if the workdir has no checkpoint, or the user has to change something else.
    """
    run = prepare(config, workdir, needs_checkpoint=True)
    with run.locked():
        logger.info("%s", banner.banner(run.experiment, run.dataset, run.folder, trains=False))
        run.finish(command, run.attack_checkpoints(run.source(transfer_from)))


def evaluate_file(
    config: ConfigDict | None,
    workdir: pathlib.Path,
    file: str,
    command: str = "",
    *,
    stated_fields: Collection[str] = (),
    transfer_from: Sequence[str] = (),
) -> None:
    """Attacks the network in a file of weights; other arguments as for `train`.

    Args:
      config: config with the network, its normalisation and the data.
      workdir: folder of the results.
      file: path of the weights, in any format of `weights.load`.
      command: command line, for the report.
      stated_fields: fields of the classifier that the command line sets; required if the file does
        not state its normalisation or another argument that decides its logits.
      transfer_from: as for `evaluate`.

    Raises:
      UsageError: if the file does not fit the config, or the user has to change something else.
    """
    run = prepare(config, workdir)
    shape, network = run.dataset.spec.image_shape, run.experiment.classifier
    loaded = processes.from_first(
        lambda: weights.load(file, network, image_shape=shape, fields=stated_fields)
    )
    with run.locked():
        if run.folder.config() is None:
            run.write_config()
        text = banner.banner_of_file(run.experiment, run.dataset, run.folder, loaded)
        logger.info("%s", text)
        source = run.source(transfer_from)
        parts = (run.experiment, run.dataset, run.folder)
        robustness.evaluate_file(*parts, jax.devices(), loaded, source)
        run.finish(command)


def verify(folder: pathlib.Path) -> bool:
    """Prints a line for each file and checkpoint of a run, or of each run of a sweep.

    Returns:
      False if a file is damaged.

    Raises:
      UsageError: if the folder contains neither a run nor a sweep.
    """
    runs = verification.verify_all(folder)
    for workdir, items in runs.items():
        print("\n".join(map(str, items)))
        print(f"\n{workdir}: {verification.summary(items)}")
    return all(item.verdict != verification.DAMAGED for items in runs.values() for item in items)


def run_sweep(
    config: ConfigDict | None,
    workdir: pathlib.Path,
    mode: str,
    sweeps: Sequence[str],
    seeds: Sequence[str],
    command: str = "",
) -> bool:
    """Trains or evaluates each point of a sweep that is not done, and prints a table of all.

    Args:
      config: config of all points.
      workdir: folder of the sweep; each point has a folder below it.
      mode: "train" or "evaluate".
      sweeps: texts such as "beta1=0.1,0.3", a field and its values.
      seeds: seeds of the runs.
      command: command line, for the reports.

    Returns:
      False if a signal stopped the sweep.

    Raises:
      UsageError: if the user has to change something; at the end, if a run failed.
    """
    points = _points(config, sweeps, seeds)

    def run_one(config: ConfigDict, folder: pathlib.Path) -> bool:
        jax.clear_caches()  # Because the number of compiled functions of a process is limited.
        if mode == "train":
            return train(config, folder, command)
        evaluate(config, folder, command)
        return True

    def is_done(config: ConfigDict, folder: pathlib.Path) -> bool:
        return processes.from_first(lambda: sweep.is_done(config, folder))

    finished = sweep.run_all(points, workdir, run_one, done=is_done)
    if finished:
        print("\n" + tables.runs_table(finished, references.of_run))
        if means := seed_means.seed_grids(finished):
            print("\n" + grids.captioned(means))
    return len(finished) == len(points)


def sweep_commands(
    config: ConfigDict | None,
    workdir: pathlib.Path,
    sweeps: Sequence[str],
    seeds: Sequence[str],
    arguments: Sequence[str],
) -> list[str]:
    """A command for each point of a sweep; `arguments` are those of the sweep's command line."""
    return sweep.command_lines(_points(config, sweeps, seeds), workdir, arguments)


def _points(
    config: ConfigDict | None, sweeps: Sequence[str], seeds: Sequence[str]
) -> list[sweep.Point]:
    if config is None:
        raise UsageError("A sweep needs a config; name one: --config=cat_jax:digits.")
    return sweep.points(config, sweep.axes(sweeps, seeds, config))
