"""Trains and evaluates one experiment.

    python -m cat_jax.main --config=configs/digits.py:cat_cent --workdir=runs/digits

trains, or goes on if the workdir holds a checkpoint, and then attacks checkpoints best/ and last/:
flags in evaluation/, accuracies in results.jsonl, a table beside the published numbers.

    python -m cat_jax.main --mode=evaluate --workdir=runs/digits --config.evaluation=standard

only attacks, here as AutoAttack does.

    python -m cat_jax.main --config=configs/digits.py --workdir=runs/s --sweep=beta1=0.1,0.3

trains one network after another, each in a folder of its own below runs/s; given again it goes on
where it stopped. Several --sweep, and --seeds=0,1,2, give every combination.

    python -m cat_jax.main --mode=verify --workdir=runs/digits

reads every file of the workdir and says which are sound; it changes nothing.

Any field of the config can be overridden: --config.method.beta1=0.1. The fields are described in
configs/default.py. Exit status: 0 done, or stopped by a signal with all saved; 2 something to
mend, said in one line; 75 another of several processes is gone: start all of them again; of verify
0 if all is sound, else 2.

    python -m cat_jax.main ... --coordinator=HOST:PORT --num_processes=2 --process_id=0

is the first of two processes that train as one; launch/ starts them in several ways.
"""

import contextlib
import logging
import pathlib
import shlex
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import NoReturn

import jax
from absl import app, flags
from absl import logging as absl_logging
from ml_collections import ConfigDict, config_flags
from tqdm import tqdm

from cat_jax import (
    build,
    data,
    distributed,
    files,
    robustness,
    settings,
    sweep,
    train,
    verify,
    workdirs,
)
from cat_jax.configs import _kept
from cat_jax.report import page, tables
from cat_jax.types import UsageError

logger = logging.getLogger("cat_jax.main")  # Not __main__, which the handler is not of.
CONFIGS = pathlib.Path(__file__).parent / "configs"

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Config file and variant: configs/digits.py:cat_cent, or cat_jax:digits."
)
WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run; made if it is not there.")
MODE = flags.DEFINE_enum(
    "mode",
    "train",
    ["train", "evaluate", "verify"],
    "Train and evaluate, only evaluate, or read every file and say what is sound.",
)
SWEEP = flags.DEFINE_multi_string(
    "sweep", [], "FIELD=VALUE,VALUE: a run for each. A field may go by the end of its path."
)
SEEDS = flags.DEFINE_list("seeds", [], "A run for each of these seeds.")
COORDINATOR = flags.DEFINE_string(
    "coordinator", None, "HOST:PORT of process 0, if there are several; then on each of them."
)
NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "How many processes there are.")
PROCESS_ID = flags.DEFINE_integer("process_id", None, "Which of them this is, from 0.")
STOPPED_STATUS = flags.DEFINE_integer(
    "stopped_status", 0, "Exit status after a signal, with all saved; 75 for launch/preemptible.sh."
)
CLUSTER = flags.DEFINE_enum(
    "cluster", None, [*distributed.CLUSTERS], "Who knows the three flags above; none is asked."
)


def run(config: ConfigDict | None, workdir: pathlib.Path, mode: str, command: str = "") -> bool:
    """Trains if asked to, evaluates, writes report.html; False if a signal stopped the training.

    Args:
      config: None for the one that the workdir was made with.
      workdir: of the run.
      mode: "train" or "evaluate".
      command: how this was started, for the report.

    Raises:
      UsageError: for what the caller can mend.
    """
    given = None if config is None else settings.resolve(config)
    resolved = distributed.from_first(lambda: _settle(given, workdir, mode))
    devices = jax.devices()
    dataset = data.load(resolved.dataset, resolved.data_dir)
    distributed.refuse_different(f"the data set {resolved.dataset}", dataset.fingerprint)
    experiment = build.experiment(resolved, dataset.spec, devices)
    robustness.check_size(resolved, dataset)
    with contextlib.ExitStack() as stack:

        def claim() -> None:
            stack.enter_context(workdirs.claimed(workdir))
            _settle(resolved, workdir, mode)  # Again: it may have been another's until now.
            workdirs.refuse_other_data(workdir, dataset.fingerprint)

        distributed.from_first(claim)
        try:
            return _run(experiment, dataset, workdir, mode, command)
        except files.Damaged as error:
            raise UsageError(str(error)) from error
        except OSError as error:
            raise UsageError(
                f"{workdir} cannot be written or read: {error}. Make room or mend the folder, then "
                "give the same command: it goes on where it was."
            ) from error


def _settle(config: ConfigDict | None, workdir: pathlib.Path, mode: str) -> ConfigDict:
    """The resolved config, by default the one that the workdir was made with.

    Raises:
      UsageError: if there is neither, or the workdir is of another, or has nothing to evaluate.
    """
    if workdirs.read_config(workdir) is not None:
        kept = settings.resolve(_kept.get_config(str(workdir)))
        config = config or kept
        workdirs.refuse_other(workdir, settings.as_dict(kept), settings.as_dict(config))
    if config is None:
        raise UsageError(f"{workdir} holds no config.json; name one: --config=configs/digits.py.")
    if mode == "evaluate" and not (workdir / "checkpoints").is_dir():
        raise UsageError(f"{workdir} holds no checkpoint; train first: --mode=train.")
    return config


def _run(
    experiment: build.Experiment,
    dataset: data.Dataset,
    workdir: pathlib.Path,
    mode: str,
    command: str,
) -> bool:
    """What `run` does in a workdir that is its own."""
    config, devices = experiment.config, jax.devices()
    for name in workdirs.LINES:  # What is damaged is said now, and not after the training.
        workdirs.read_lines(workdir, name)
    if mode == "train":
        workdirs.write_config(workdir, settings.as_dict(config), dataset.fingerprint)
        logger.info(
            "%s %s: %d steps of %d images on %d %s device(s) of %d process(es), in %s",
            *(config.dataset, config.variant, experiment.num_steps, config.batch_size),
            *(len(devices), devices[0].platform, jax.process_count(), workdir),
        )
    whole = mode == "evaluate" or train.train(experiment, dataset, workdir, devices)
    if whole:
        robustness.evaluate(experiment, dataset, workdir, devices)
    else:
        logger.info("To go on, give the same command again.")
    if command:
        workdirs.note_command(workdir, command)
    logger.info("Report: %s", page.write_page(workdir))
    return whole


def _agreeing(config: ConfigDict | None, workdir: pathlib.Path) -> ConfigDict:
    """The config resolved, or that of the workdir; UsageError if they are of two experiments."""
    config = None if config is None else settings.resolve(config)
    if workdirs.read_config(workdir) is not None:
        kept = settings.resolve(_kept.get_config(str(workdir)))
        config = config or kept
        workdirs.refuse_other(workdir, settings.as_dict(kept), settings.as_dict(config))
    if config is None:
        raise UsageError(f"{workdir} holds no config.json; name one: --config=configs/digits.py.")
    return config


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
        raise UsageError("A sweep needs a config; name one: --config=configs/digits.py.")
    made = sweep.points(config, sweep.axes(sweeps, seeds, config))

    def run_one(config: ConfigDict, folder: pathlib.Path) -> bool:
        jax.clear_caches()  # Compiled functions of the run before; a process can hold only so many.
        return run(config, folder, mode, command)

    def done(config: ConfigDict, folder: pathlib.Path) -> bool:
        return distributed.from_first(lambda: _is_done(config, folder))

    ended = sweep.run_all(made, workdir, run_one, done=done)
    if ended:
        print("\n" + tables.runs_table(ended))
    return len(ended) == len(made)


def run_verify(workdir: pathlib.Path) -> bool:
    """Prints a line for each file and checkpoint of a workdir; False if one is not sound.

    Raises:
      UsageError: if it is no workdir of a run.
    """
    items = verify.verify(workdir)
    print("\n".join(map(str, items)))
    print(f"\n{workdir}: {verify.summary(items)}")
    return all(item.verdict != verify.WRONG for item in items)


def _is_done(config: ConfigDict, workdir: pathlib.Path) -> bool:
    if workdirs.read_config(workdir) is None:
        return False
    resolved = settings.resolve(config)
    spec = data.load(resolved.dataset, resolved.data_dir).spec
    made = build.experiment(resolved, spec, jax.devices())
    return sweep.is_done(config, workdir, made.num_steps, {a.name for a in made.attacks})


def parse(argv: Sequence[str]) -> list[str]:
    """Parses the command line; what is wrong with it is said in one line."""
    try:
        rest: list[str] = flags.FLAGS(find_config(argv))
        if len(rest) > 1:
            raise UsageError(f"{rest[1]!r} is not understood; flags start with --.")
        if not WORKDIR.value:
            raise UsageError("--workdir is missing; name a folder for the run: --workdir=runs/x.")
        return rest
    except (AttributeError, KeyError) as error:  # An override of a field that there is not.
        fail(f"The config has no such field: {error.args[0]} All are in configs/default.py.")
    except Exception as error:
        fail(str(error))


def find_config(argv: Sequence[str]) -> list[str]:
    """The command line with `--config=cat_jax:NAME` as the path of the installed file.

    Without --config, it gets the one that reads the config which the workdir was made with.

    Raises:
      UsageError: if there is no such file.
    """
    found = list(argv)
    named = list(_values(found, "config"))
    for place, flag, value in named:
        found[place] = flag + _config_file(value)
    verifies = "verify" in [value for _, _, value in _values(found, "mode")]
    for _, _, workdir in [] if named or verifies else list(_values(found, "workdir"))[-1:]:
        if workdirs.read_config(pathlib.Path(workdir)) is not None:
            found.insert(1, f"--config={CONFIGS / '_kept.py'}:{workdir}")
    return found


def _values(argv: Sequence[str], name: str) -> Iterator[tuple[int, str, str]]:
    """Each value of a flag, "--name=value" or "--name value": where it is, what is before it."""
    for i, argument in enumerate(argv):
        flag, equals, value = argument.partition("=")
        if flag in (f"-{name}", f"--{name}"):
            if equals:
                yield i, f"{flag}=", value
            elif i + 1 < len(argv):
                yield i + 1, "", argv[i + 1]


def _config_file(value: str) -> str:
    if value.startswith("cat_jax:"):
        name, *variant = value.removeprefix("cat_jax:").split(":", 1)
        value = ":".join([str(CONFIGS / f"{name}.py"), *variant])
    path = pathlib.Path(value.partition(":")[0])
    if not path.is_file():
        names = sorted(f.stem for f in CONFIGS.glob("[!_]*.py") if f.stem != "default")
        raise UsageError(
            f"There is no config file {path}; name one, or an installed one as "
            f"--config=cat_jax:NAME with NAME one of {', '.join(names)}."
        )
    return value


def fail(text: str) -> NoReturn:
    """Says what is wrong in one line, and ends with status 2."""
    text = text.rpartition("UsageError: ")[2]  # The flags library wraps ours in a traceback.
    print(f"error: {' '.join(text.split())}", file=sys.stderr)
    if jax.distributed.is_initialized():
        distributed.leave(2)
    sys.exit(2)


def main(argv: Sequence[str]) -> None:
    """`run` with the flags; errors that the caller can mend become one line."""
    del argv
    absl_logging.set_verbosity(absl_logging.FATAL)  # orbax and jax tell all; errors are raised.
    try:
        if MODE.value == "verify":
            sys.exit(0 if run_verify(pathlib.Path(str(WORKDIR.value))) else 2)
        distributed.start(COORDINATOR.value, NUM_PROCESSES.value, PROCESS_ID.value, CLUSTER.value)
        start_logging()
        with distributed.outlet(pathlib.Path(str(WORKDIR.value))) as workdir:
            command = shlex.join(["python", "-m", "cat_jax.main", *sys.argv[1:]])
            if SWEEP.value or SEEDS.value:
                more = (SWEEP.value, SEEDS.value, command)
                whole = run_sweep(CONFIG.value, workdir, MODE.value, *more)
            else:
                whole = run(CONFIG.value, workdir, MODE.value, command)
        if not whole:
            sys.exit(STOPPED_STATUS.value)
    except (UsageError, files.Damaged) as error:
        fail(str(error))
    except Exception as error:
        if not jax.distributed.is_initialized():
            raise
        if not distributed.is_loss(error):
            traceback.print_exc()
            distributed.leave(1)
        logger.error(
            "Another process is gone (%s). Start all of them again with the same commands: the run "
            "goes on from its last checkpoint.",
            str(error).split("\n")[0],
        )
        distributed.leave(distributed.TRY_AGAIN)


class _BarHandler(logging.Handler):
    """Writes above the progress bar instead of through it."""

    def emit(self, record: logging.LogRecord) -> None:
        tqdm.write(self.format(record), file=sys.stderr)


def start_logging() -> None:
    """This package's messages on standard error: from INFO, of processes but the first WARNING."""
    first = distributed.is_first()
    which = "" if first else f"process {jax.process_index()}: "
    handler = _BarHandler()
    handler.setFormatter(logging.Formatter(f"%(asctime)s {which}%(message)s", "%H:%M:%S"))
    package = logging.getLogger("cat_jax")
    package.setLevel(logging.INFO if first else logging.WARNING)
    package.propagate = False
    package.handlers = [handler]


if __name__ == "__main__":
    app.run(main, flags_parser=parse)
