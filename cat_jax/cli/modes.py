"""The modes of `python -m cat_jax.main`: train, evaluate, evaluate a file, verify, sweep.

Settings resolve a config, `build_experiment` makes objects of it, training and evaluation use these
objects, and this module prints the results.
"""

import contextlib
import logging
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
from ml_collections import ConfigDict

from cat_jax import data, weights
from cat_jax.cli import banner, sweep
from cat_jax.errors import Damaged, UsageError
from cat_jax.evaluation import robustness
from cat_jax.experiment import run_config, settings
from cat_jax.experiment.experiment import Experiment, build_experiment
from cat_jax.paper import references
from cat_jax.report import details, tables
from cat_jax.runtime import processes, registry
from cat_jax.storage import checkpoint, paths, run_folder
from cat_jax.storage import verify as verification
from cat_jax.training import loop

logger = logging.getLogger(__name__)


class Run(NamedTuple):
    """An experiment, its data, and the folder of its files.

    Attributes:
      experiment: objects of the resolved config.
      dataset: images and labels.
      workdir: folder of the run.
      given: config before it was resolved.
      needs_checkpoint: whether the mode requires a checkpoint of the run.
    """

    experiment: Experiment
    dataset: data.Dataset
    workdir: pathlib.Path
    given: ConfigDict
    needs_checkpoint: bool


def train(config: ConfigDict | None, workdir: pathlib.Path, command: str = "") -> bool:
    """Trains or resumes a run, then attacks its checkpoints and writes report.html.

    Args:
      config: config of the run; None: the config in the workdir.
      workdir: folder of the run.
      command: command line, for the report.

    Returns:
      False if a signal stopped the training; its state is saved.

    Raises:
      UsageError: if the user has to change something.
    """
    run = _prepare(config, workdir)
    with _locked(run):
        last = workdir / "checkpoints" / "last"
        processes.from_first(lambda: checkpoint.refuse_fewer_steps(last, run.experiment.num_steps))
        _write_config(run)
        _announce(run, trains=True)
        finished = loop.train(run.experiment, run.dataset, workdir, jax.devices())
        if finished:
            mask_text = robustness.evaluate(run.experiment, run.dataset, workdir, jax.devices())
            _finish(run, command, mask_text)
        else:
            again = f": {command}" if command else "."
            logger.info("To resume, run the same command again%s", again)
            _write_page(workdir, command)
    return finished


def evaluate(config: ConfigDict | None, workdir: pathlib.Path, command: str = "") -> None:
    """Attacks the checkpoints of a run and writes report.html; arguments as for `train`.

    Raises:
      UsageError: if the workdir has no checkpoint, or the user has to change something else.
    """
    run = _prepare(config, workdir, needs_checkpoint=True)
    with _locked(run):
        _announce(run)
        mask_text = robustness.evaluate(run.experiment, run.dataset, workdir, jax.devices())
        _finish(run, command, mask_text)


def evaluate_file(
    config: ConfigDict | None,
    workdir: pathlib.Path,
    file: str,
    command: str = "",
    *,
    states_normalisation: bool = False,
) -> None:
    """Attacks the network in a file of weights; other arguments as for `train`.

    Args:
      config: config with the network, its normalisation and the data.
      workdir: folder of the results.
      file: path of the weights, in any format of `weights.load`.
      command: command line, for the report.
      states_normalisation: whether the command line sets mean and std; required if the file does
        not contain them.

    Raises:
      UsageError: if the file does not fit the config, or the user has to change something else.
    """
    run = _prepare(config, workdir)
    shape, network = run.dataset.spec.image_shape, run.experiment.classifier
    loaded = processes.from_first(
        lambda: weights.load(
            file, network, image_shape=shape, states_normalisation=states_normalisation
        )
    )
    with _locked(run):
        if run_folder.read_config(workdir) is None:
            _write_config(run)
        text = banner.banner_of_file(run.experiment, run.dataset, workdir, loaded)
        logger.info("%s", text)
        robustness.evaluate_file(run.experiment, run.dataset, workdir, jax.devices(), loaded)
        _finish(run, command)


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
    if config is None:
        raise UsageError("A sweep needs a config; name one: --config=cat_jax:digits.")
    points = sweep.points(config, sweep.axes(sweeps, seeds, config))

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
    return len(finished) == len(points)


def _prepare(
    config: ConfigDict | None, workdir: pathlib.Path, *, needs_checkpoint: bool = False
) -> Run:
    """Loads the data and builds the experiment; writes nothing."""
    given = processes.from_first(lambda: _settle(config, workdir, needs_checkpoint))
    resolved = settings.resolve(given)
    registry.import_plugins(resolved.plugins)
    dataset = data.load(resolved.dataset, resolved.data_dir)
    processes.refuse_different(f"the data set {resolved.dataset}", dataset.fingerprint)
    experiment = build_experiment(resolved, dataset.spec, jax.devices())
    robustness.check_size(resolved, dataset)
    return Run(experiment, dataset, workdir, given, needs_checkpoint)


@contextlib.contextmanager
def _locked(run: Run) -> Iterator[None]:
    """Locks the workdir while the block runs."""
    workdir = run.workdir
    with contextlib.ExitStack() as stack:

        def claim() -> None:
            stack.enter_context(run_folder.claimed(workdir))
            # Because another process could write in the workdir before it was locked.
            _settle(run.given, workdir, run.needs_checkpoint)
            run_folder.refuse_other_data(workdir, run.dataset.fingerprint)
            for name in run_folder.LINES:  # Because training is too late to find damaged lines.
                run_folder.read_lines(workdir, name)

        try:
            processes.from_first(claim)
            yield
        except Damaged as error:
            raise UsageError(str(error)) from error
        except BrokenPipeError:  # An error of standard output, and not of the workdir.
            raise
        except OSError as error:
            if processes.is_first() and not paths.is_of_folder(error, workdir):
                raise
            raise UsageError(
                f"{workdir} cannot be written or read: {error}. Free disk space or fix its "
                "permissions, then run the same command again to resume."
            ) from error


def _settle(config: ConfigDict | None, workdir: pathlib.Path, needs_checkpoint: bool) -> ConfigDict:
    """Returns the config; default: the config that the workdir was created with.

    Raises:
      UsageError: if there is no config, the workdir was created with a different config, or a
        required checkpoint is missing.
    """
    if run_folder.read_config(workdir) is not None:
        stored = run_config.get_config(str(workdir))
        config = config or stored
        run_config.refuse_other(workdir, settings.resolve(stored), settings.resolve(config))
    if config is None:
        raise UsageError(f"{workdir} holds no config.json; name one: --config=cat_jax:digits.")
    if needs_checkpoint and not (workdir / "checkpoints").is_dir():
        raise UsageError(f"{workdir} holds no checkpoint; train first: --mode=train.")
    return config


def _write_config(run: Run) -> None:
    resolved = run.experiment.config
    fields = settings.as_dict(resolved), settings.given_values(run.given, resolved)
    run_folder.write_config(run.workdir, *fields, run.dataset.fingerprint)


def _announce(run: Run, *, trains: bool = False) -> None:
    text = banner.banner(run.experiment, run.dataset, run.workdir, trains=trains)
    logger.info("%s", text)


def _finish(run: Run, command: str, mask_text: str = "") -> None:
    """Writes the page and prints the mask, the checks and, last, the results."""
    _write_page(run.workdir, command)
    if not run.experiment.attacks:
        return
    texts = [mask_text, details.checks_summary(run.workdir, sys.stdout)]
    texts.append(tables.runs_table([run.workdir], references.of_run))
    print("\n\n".join(filter(None, texts)))


def _write_page(workdir: pathlib.Path, command: str) -> None:
    if command:
        run_folder.note_command(workdir, command)
    from cat_jax.report import page  # Here, because it imports matplotlib, which takes a second.

    logger.info("Report: %s", page.write_page(workdir, references.of_run))
