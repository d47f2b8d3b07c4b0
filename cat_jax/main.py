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
mend, said in one line; of verify 0 if all is sound, else 2.
"""

import logging
import pathlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import NoReturn

import jax
from absl import app, flags
from absl import logging as absl_logging
from ml_collections import ConfigDict, config_flags
from tqdm import tqdm

from cat_jax import build, data, files, robustness, settings, sweep, train, verify, workdirs
from cat_jax.configs import _kept
from cat_jax.report import page, tables
from cat_jax.types import UsageError

logger = logging.getLogger(__name__)
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
    resolved = _settle(None if config is None else settings.resolve(config), workdir)
    if mode == "evaluate" and not (workdir / "checkpoints").is_dir():
        raise UsageError(f"{workdir} holds no checkpoint; train first: --mode=train.")
    devices = jax.local_devices()
    dataset = data.load(resolved.dataset, resolved.data_dir)
    experiment = build.experiment(resolved, dataset.spec, devices)
    robustness.check_size(resolved, dataset)
    with workdirs.claimed(workdir):
        _settle(resolved, workdir)  # Again: it may have been another's until now.
        workdirs.refuse_other_data(workdir, dataset.fingerprint)
        try:
            return _run(experiment, dataset, workdir, mode, command)
        except files.Damaged as error:
            raise UsageError(str(error)) from error
        except OSError as error:
            raise UsageError(
                f"{workdir} cannot be written or read: {error}. Make room or mend the folder, then "
                "give the same command: it goes on where it was."
            ) from error


def _settle(config: ConfigDict | None, workdir: pathlib.Path) -> ConfigDict:
    """The resolved config, by default the one that the workdir was made with.

    Raises:
      UsageError: if there is neither, or the workdir is of another.
    """
    if workdirs.read_config(workdir) is not None:
        kept = settings.resolve(_kept.get_config(str(workdir)))
        config = config or kept
        workdirs.refuse_other(workdir, settings.as_dict(kept), settings.as_dict(config))
    if config is None:
        raise UsageError(f"{workdir} holds no config.json; name one: --config=configs/digits.py.")
    return config


def _run(
    experiment: build.Experiment,
    dataset: data.Dataset,
    workdir: pathlib.Path,
    mode: str,
    command: str,
) -> bool:
    """What `run` does in a workdir that is its own."""
    config, devices = experiment.config, jax.local_devices()
    for name in workdirs.LINES:  # What is damaged is said now, and not after the training.
        workdirs.read_lines(workdir, name)
    if mode == "train":
        workdirs.write_config(workdir, settings.as_dict(config), dataset.fingerprint)
        logger.info(
            "%s %s: %d steps of %d images on %d %s device(s), in %s",
            *(config.dataset, config.variant, experiment.num_steps, config.batch_size),
            *(len(devices), devices[0].platform, workdir),
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


def run_sweep(
    config: ConfigDict | None,
    workdir: pathlib.Path,
    mode: str,
    sweeps: Sequence[str],
    seeds: Sequence[str],
    command: str = "",
) -> None:
    """`run` for each point of a sweep that is not done, and a table of all of them.

    Raises:
      UsageError: for what the caller can mend, and at the end if a run has failed.
    """
    if config is None:
        raise UsageError("A sweep needs a config; name one: --config=configs/digits.py.")
    made = sweep.points(config, sweep.axes(sweeps, seeds, config))

    def run_one(config: ConfigDict, folder: pathlib.Path) -> bool:
        jax.clear_caches()  # Compiled functions of the run before; a process can hold only so many.
        return run(config, folder, mode, command)

    ended = sweep.run_all(made, workdir, run_one, done=_is_done)
    if ended:
        print("\n" + tables.runs_table(ended))


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
    made = build.experiment(resolved, spec, jax.local_devices())
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
    sys.exit(2)


def main(argv: Sequence[str]) -> None:
    """`run` with the flags; errors that the caller can mend become one line."""
    del argv
    start_logging()
    try:
        workdir = pathlib.Path(str(WORKDIR.value))
        command = shlex.join(["python", "-m", "cat_jax.main", *sys.argv[1:]])
        if MODE.value == "verify":
            sys.exit(0 if run_verify(workdir) else 2)
        if SWEEP.value or SEEDS.value:
            run_sweep(CONFIG.value, workdir, MODE.value, SWEEP.value, SEEDS.value, command)
        else:
            run(CONFIG.value, workdir, MODE.value, command)
    except (UsageError, files.Damaged) as error:
        fail(str(error))


class _BarHandler(logging.Handler):
    """Writes above the progress bar instead of through it."""

    def emit(self, record: logging.LogRecord) -> None:
        tqdm.write(self.format(record), file=sys.stderr)


def start_logging() -> None:
    """This package's messages, from INFO, on standard error."""
    handler = _BarHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    absl_logging.set_verbosity(absl_logging.FATAL)  # orbax tells all it does; errors are raised.
    package = logging.getLogger("cat_jax")
    package.setLevel(logging.INFO)
    package.propagate = False
    package.handlers = [handler]


if __name__ == "__main__":
    app.run(main, flags_parser=parse)
