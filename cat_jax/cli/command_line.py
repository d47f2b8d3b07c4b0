"""The command line of `cat_jax.main`: its flags, and what is wrong with it in one line."""

import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import NoReturn

import jax
from absl import app, flags
from ml_collections import config_flags

from cat_jax import configs
from cat_jax.errors import UsageError
from cat_jax.runtime import processes, terminal
from cat_jax.storage import run_folder

CONFIGS = pathlib.Path(configs.__file__).parent

CONFIG = config_flags.DEFINE_config_file(
    "config",
    None,
    "An installed config or a file, and a variant: cat_jax:digits:cat_cent, configs/digits.py:at.",
)
WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run; made if it is not there.")
MODE = flags.DEFINE_enum(
    "mode",
    "train",
    ["train", "evaluate", "verify"],
    "Train and evaluate, only evaluate, or report damaged files.",
)
WEIGHTS = flags.DEFINE_string(
    "weights", None, "With --mode=evaluate: a file of weights, instead of the run's checkpoints."
)
SWEEP = flags.DEFINE_multi_string(
    "sweep", [], "FIELD=VALUE,VALUE: a run for each. A field may go by the end of its path."
)
SEEDS = flags.DEFINE_list("seeds", [], "A run for each of these seeds.")
STOPPED_STATUS = flags.DEFINE_integer(
    "stopped_status", 0, "Exit status after a signal, with all saved; 75 for launch/preemptible.sh."
)
DETERMINISTIC = flags.DEFINE_bool(
    "deterministic", False, "The same bits from the same run on a GPU too, where it costs time."
)
QUIET = flags.DEFINE_bool("quiet", False, "Print warnings and results only.")
COORDINATOR = flags.DEFINE_string(
    "coordinator", None, "HOST:PORT of process 0, if there are several; then on each of them."
)
NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "How many processes there are.")
PROCESS_ID = flags.DEFINE_integer("process_id", None, "Which of them this is, from 0.")
CLUSTER = flags.DEFINE_enum(
    "cluster", None, [*processes.CLUSTERS], "Who knows the three flags above; none is asked."
)


def parse(argv: Sequence[str]) -> list[str]:
    """Parses the command line; what is wrong with it is said in one line."""
    if {"-h", "--help"} & set(argv):
        app.usage(shorthelp=True, writeto_stdout=True, exitcode=0)  # By itself absl says 1.
    rest = read(flags.FLAGS, argv)
    if not WORKDIR.value:
        fail("--workdir is missing; name a folder for the run: --workdir=runs/x.")
    if WEIGHTS.value and (MODE.value != "evaluate" or SWEEP.value or SEEDS.value):
        fail("--weights goes with --mode=evaluate, and without --sweep and --seeds.")
    return rest


def read(values: flags.FlagValues, argv: Sequence[str]) -> list[str]:
    """Reads the command line into `values`, of which one may be a config."""
    try:
        rest: list[str] = values(find_config(argv))
        if len(rest) > 1:
            raise UsageError(f"{rest[1]!r} is not understood; flags start with --.")
        return rest
    except (AttributeError, KeyError) as error:  # An override of a field that there is not.
        fail(f"The config has no such field: {error.args[0]} All are in {CONFIGS / 'default.py'}.")
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
        if run_folder.read_config(pathlib.Path(workdir)) is not None:
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
    text = f"error: {' '.join(text.split())}"
    print(terminal.coloured(text, terminal.RED, sys.stderr), file=sys.stderr)
    if jax.distributed.is_initialized():
        processes.leave(2)
    sys.exit(2)
