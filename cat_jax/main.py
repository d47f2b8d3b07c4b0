"""Trains and evaluates one experiment.

    python -m cat_jax.main --config=cat_jax:digits:cat_cent --workdir=runs/digits

trains, or goes on if the workdir holds a checkpoint, and then attacks checkpoints best/ and last/:
flags in evaluation/, accuracies in results.jsonl, a table beside the published numbers.

    python -m cat_jax.main --mode=evaluate --workdir=runs/digits --config.evaluation=standard

only attacks, here as AutoAttack does.

    python -m cat_jax.main --mode=evaluate --config=cat_jax:mnist --workdir=runs/x --weights=FILE

attacks the network in a file: a published PyTorch checkpoint, or what
`python -m cat_jax.weights.export` wrote. The config names the network and the
data; results.jsonl names the file and its SHA-256.

    python -m cat_jax.main --config=cat_jax:digits --workdir=runs/s --sweep=beta1=0.1,0.3

trains one network after another, each in a folder of its own below runs/s; given again it goes on
where it stopped. Several --sweep, and --seeds=0,1,2, give every combination.

    python -m cat_jax.main --mode=verify --workdir=runs/digits

reads the files of the workdir, or of every run of a sweep, and reports damaged ones; it changes
nothing.

    python -m cat_jax.main --plugin=my_module --config=... --config.classifier.name=MyNet

imports a module of yours, which registers a network, method, attack or data set under a name. The
run remembers it.

Any field of the config can be overridden: --config.method.beta1=0.1. The fields are described in
cat_jax/configs/default.py. --quiet prints warnings and results only; programs read the results
from results.jsonl and checks.jsonl in the workdir. Ctrl-C saves; the same command then resumes.

    exit status
      0    done; or a signal stopped the training, with all saved (--stopped_status=N for another)
      1    an error of the program itself, with a traceback
      2    an error of the user, in one line; with --mode=verify: something is damaged
      75   another of several processes is gone: start all of them again
      130  Ctrl-C where there was nothing to save, as in an evaluation, or twice

    python -m cat_jax.main ... --coordinator=HOST:PORT --num_processes=2 --process_id=0

is the first of two processes that train as one; launch/ of the repository starts them in several
ways.
"""

import contextlib
import logging
import os
import pathlib
import shlex
import sys
import traceback
from collections.abc import Sequence

import jax
from absl import app, flags
from absl import logging as absl_logging
from ml_collections import ConfigDict

from cat_jax import data, weights
from cat_jax.cli import banner, command_line, sweep
from cat_jax.cli.command_line import (
    CLUSTER,
    CONFIG,
    COORDINATOR,
    DETERMINISTIC,
    MODE,
    NUM_PROCESSES,
    PROCESS_ID,
    QUIET,
    SEEDS,
    STOPPED_STATUS,
    SWEEP,
    WEIGHTS,
    WORKDIR,
    fail,
    parse,
)
from cat_jax.errors import Damaged, UsageError
from cat_jax.evaluation import robustness
from cat_jax.experiment import run_config, settings
from cat_jax.experiment.experiment import Experiment, build_experiment
from cat_jax.report import tables
from cat_jax.runtime import backend, processes, registry, terminal
from cat_jax.storage import checkpoint, paths, run_folder, verify
from cat_jax.training import loop
from cat_jax.weights.loading import Loaded

logger = logging.getLogger("cat_jax.main")  # Not __main__, which the handler is not of.
flags.adopt_module_key_flags(command_line)  # For --help.


def run(
    config: ConfigDict | None,
    workdir: pathlib.Path,
    mode: str,
    command: str = "",
    weights_file: str = "",
    states_normalisation: bool = False,
) -> bool:
    """Trains if asked to, evaluates, writes report.html; False if a signal stopped the training.

    Args:
      config: None for the one that the workdir was made with.
      workdir: of the run.
      mode: "train" or "evaluate".
      command: how this was started, for the report.
      weights_file: in mode "evaluate", what to evaluate instead of the checkpoints.
      states_normalisation: whether the config has the mean and std of the file on purpose, as
        opposed to by default; needed for a file that does not state them.

    Raises:
      UsageError: for what the caller can mend.
    """
    wanted = mode == "evaluate" and not weights_file
    source = processes.from_first(lambda: _settle(config, workdir, wanted))
    resolved = settings.resolve(source)
    registry.import_plugins(resolved.plugins)
    devices = jax.devices()
    dataset = data.load(resolved.dataset, resolved.data_dir)
    processes.refuse_different(f"the data set {resolved.dataset}", dataset.fingerprint)
    experiment = build_experiment(resolved, dataset.spec, devices)
    robustness.check_size(resolved, dataset)
    loaded = None
    if weights_file:
        shape, network = dataset.spec.image_shape, experiment.classifier
        loaded = processes.from_first(
            lambda: weights.load(
                weights_file,
                network,
                image_shape=shape,
                states_normalisation=states_normalisation,
            )
        )
    with contextlib.ExitStack() as stack:

        def claim() -> None:
            stack.enter_context(run_folder.claimed(workdir))
            _settle(source, workdir, wanted)  # Again: it may have been another's until now.
            run_folder.refuse_other_data(workdir, dataset.fingerprint)
            if mode == "train":
                last = workdir / "checkpoints" / "last"
                checkpoint.refuse_fewer_steps(last, experiment.num_steps)

        processes.from_first(claim)
        try:
            return _run(experiment, dataset, workdir, mode, command, loaded, source)
        except Damaged as error:
            raise UsageError(str(error)) from error
        except BrokenPipeError:  # Standard output's.
            raise
        except OSError as error:
            if processes.is_first() and not paths.is_of_folder(error, workdir):
                raise
            raise UsageError(
                f"{workdir} cannot be written or read: {error}. Free disk space or fix its "
                "permissions, then run the same command again to resume."
            ) from error


def _settle(config: ConfigDict | None, workdir: pathlib.Path, wanted: bool) -> ConfigDict:
    """The config, by default the one that the workdir was made with.

    Args:
      config: not resolved, or None.
      workdir: of the run.
      wanted: whether there have to be checkpoints.

    Raises:
      UsageError: if there is neither, or the workdir is of another, or has nothing to evaluate.
    """
    if run_folder.read_config(workdir) is not None:
        kept = run_config.get_config(str(workdir))
        config = config or kept
        run_config.refuse_other(workdir, settings.resolve(kept), settings.resolve(config))
    if config is None:
        raise UsageError(f"{workdir} holds no config.json; name one: --config=cat_jax:digits.")
    if wanted and not (workdir / "checkpoints").is_dir():
        raise UsageError(f"{workdir} holds no checkpoint; train first: --mode=train.")
    return config


def _run(
    experiment: Experiment,
    dataset: data.Dataset,
    workdir: pathlib.Path,
    mode: str,
    command: str,
    loaded: Loaded | None,
    source: ConfigDict,
) -> bool:
    """What `run` does in a workdir that is its own."""
    config, devices = experiment.config, jax.devices()
    for name in run_folder.LINES:  # What is damaged is said now, and not after the training.
        run_folder.read_lines(workdir, name)
    if mode == "train" or run_folder.read_config(workdir) is None:
        fields = settings.as_dict(config), settings.given_values(source, config)
        run_folder.write_config(workdir, *fields, dataset.fingerprint)
    if loaded is None:
        text = banner.banner(experiment, dataset, workdir, trains=mode == "train")
    else:
        text = banner.banner_of_file(experiment, dataset, workdir, loaded)
    logger.info("%s", text)
    whole = mode == "evaluate" or loop.train(experiment, dataset, workdir, devices)
    mask_text = ""
    if loaded is not None:
        robustness.evaluate_file(experiment, dataset, workdir, devices, loaded)
    elif whole:
        mask_text = robustness.evaluate(experiment, dataset, workdir, devices)
    else:
        logger.info("To go on, give the same command again%s", f": {command}" if command else ".")
    if experiment.attacks and whole:
        _print_results(workdir, mask_text)
    if command:
        run_folder.note_command(workdir, command)
    from cat_jax.report import page  # With matplotlib, for which the first step need not wait.

    logger.info("Report: %s", page.write_page(workdir))
    return whole


def _print_results(workdir: pathlib.Path, mask_text: str) -> None:
    print(tables.runs_table([workdir]))
    print("\n" + tables.costs_table(workdir))
    print("\n" + tables.checks_list(workdir))
    if mask_text:
        print("\n" + mask_text)


def run_sweep(
    config: ConfigDict | None,
    workdir: pathlib.Path,
    mode: str,
    sweeps: Sequence[str],
    seeds: Sequence[str],
    command: str = "",
) -> bool:
    """`run` for each point of a sweep that is not done, and a table; False if a signal stopped it.

    Raises:
      UsageError: for what the caller can mend, and at the end if a run has failed.
    """
    if config is None:
        raise UsageError("A sweep needs a config; name one: --config=cat_jax:digits.")
    made = sweep.points(config, sweep.axes(sweeps, seeds, config))

    def run_one(config: ConfigDict, folder: pathlib.Path) -> bool:
        jax.clear_caches()  # Compiled functions of the run before; a process can hold only so many.
        return run(config, folder, mode, command)

    def done(config: ConfigDict, folder: pathlib.Path) -> bool:
        return processes.from_first(lambda: sweep.is_done(config, folder))

    ended = sweep.run_all(made, workdir, run_one, done=done)
    if ended:
        print("\n" + tables.runs_table(ended))
    return len(ended) == len(made)


def run_verify(folder: pathlib.Path) -> bool:
    """Prints a line for each file and checkpoint of a run, or of each run of a sweep.

    Returns:
      False if one is damaged.

    Raises:
      UsageError: if the folder is neither a run's nor a sweep's.
    """
    runs = verify.verify_all(folder)
    for workdir, items in runs.items():
        print("\n".join(map(str, items)))
        print(f"\n{workdir}: {verify.summary(items)}")
    return all(item.verdict != verify.DAMAGED for items in runs.values() for item in items)


def main(argv: Sequence[str]) -> None:
    """`run` with the flags; errors that the caller can mend become one line."""
    del argv
    absl_logging.set_verbosity(absl_logging.FATAL)  # orbax and jax tell all; errors are raised.
    command = shlex.join(["python", "-m", "cat_jax.main", *sys.argv[1:]])
    try:
        if MODE.value == "verify":
            sys.exit(0 if run_verify(pathlib.Path(str(WORKDIR.value))) else 2)
        backend.start_fast()
        if DETERMINISTIC.value:
            backend.compute_deterministically()
        processes.start(COORDINATOR.value, NUM_PROCESSES.value, PROCESS_ID.value, CLUSTER.value)
        backend.check_devices()
        terminal.start(jax.process_index(), quiet=QUIET.value)
        with processes.outlet(pathlib.Path(str(WORKDIR.value))) as workdir:
            if SWEEP.value or SEEDS.value:
                more = (SWEEP.value, SEEDS.value, command)
                whole = run_sweep(CONFIG.value, workdir, MODE.value, *more)
            else:
                of_file = (WEIGHTS.value or "", command_line.states_normalisation())
                whole = run(CONFIG.value, workdir, MODE.value, command, *of_file)
        if not whole:
            sys.exit(STOPPED_STATUS.value)
    except (UsageError, Damaged) as error:
        fail(str(error))
    except BrokenPipeError:  # The reader, such as head, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        logger.warning(
            "Interrupted. What was saved is kept; to go on, give the same command again."
        )
        if jax.distributed.is_initialized():
            processes.leave(banner.INTERRUPTED)
        sys.exit(banner.INTERRUPTED)
    except Exception as error:
        if not jax.distributed.is_initialized():
            raise
        if not processes.is_loss(error):
            traceback.print_exc()
            processes.leave(1)
        logger.error(
            "Another process is gone (%s). Start all of them again with the same commands: the run "
            "goes on from its last checkpoint.",
            str(error).split("\n")[0],
        )
        processes.leave(processes.TRY_AGAIN)


if __name__ == "__main__":
    app.run(main, flags_parser=parse)
