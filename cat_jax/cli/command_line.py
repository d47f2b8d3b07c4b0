"""The flags of `python -m cat_jax.main`, its --help, and one-line errors."""

import pathlib
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import jax
from absl import flags
from ml_collections import config_flags

from cat_jax.cli import config_files
from cat_jax.errors import UsageError
from cat_jax.experiment import run_config, settings
from cat_jax.experiment.fields import FIELDS
from cat_jax.runtime import cluster, processes, registry, terminal
from cat_jax.storage import paths, run_folder
from cat_jax.storage.run_folder import RunFolder

# --config.PATH=VALUE, --noconfig.PATH, --config.PATH[0]=VALUE.
OVERRIDE = re.compile(r"--?(no)?config\.(?P<path>[^=\[]*)")

# The command line after parsing: without flag files, and with the path of the config.
ARGUMENTS: list[str] = []
CONFIG = config_flags.DEFINE_config_file(
    "config",
    None,
    "cat_jax:NAME[:VARIANT] or FILE.py[:VARIANT].",
    sys_argv=ARGUMENTS,
)
WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run; created if it is missing.")
MODE = flags.DEFINE_enum(
    "mode",
    "train",
    ["train", "evaluate", "verify"],
    "train (default), evaluate, or verify (find damaged files).",
)
INIT_FROM = flags.DEFINE_string("init_from", None, "Train from the weights of this run or file.")
WEIGHTS = flags.DEFINE_string("weights", None, "With --mode=evaluate: attack this file of weights.")
TRANSFER_FROM = flags.DEFINE_list(
    "transfer_from", [], "With --mode=evaluate: attack with images of these runs too."
)
PLUGIN = flags.DEFINE_multi_string(
    "plugin", [], "Your module with a network, method, attack or data set."
)
SWEEP = flags.DEFINE_multi_string(
    "sweep", [], "FIELD=VALUE,VALUE: one run for each value; repeatable."
)
SEEDS = flags.DEFINE_list("seeds", [], "SEED,SEED: one run for each seed.")
PRINT_COMMANDS = flags.DEFINE_bool(
    "print_commands", False, "With --sweep or --seeds: print a command for each run."
)
PROFILE = flags.DEFINE_string(
    "profile", None, "START:STOP: JAX trace of these steps, in WORKDIR/profile."
)
QUIET = flags.DEFINE_bool("quiet", False, "Print warnings and results only.")
DETERMINISTIC = flags.DEFINE_bool("deterministic", False, "Bitwise reproducible on GPUs (slower).")
STOPPED_STATUS = flags.DEFINE_integer(
    "stopped_status", 0, "Exit status after a signal, once the run is saved."
)
COORDINATOR = flags.DEFINE_string("coordinator", None, "HOST:PORT of process 0 of several.")
NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "Number of processes.")
PROCESS_ID = flags.DEFINE_integer("process_id", None, "Index of this process, from 0.")
CLUSTER = flags.DEFINE_enum(
    "cluster", None, [*cluster.CLUSTERS], "Scheduler that sets the three flags above."
)


def parse(argv: Sequence[str]) -> list[str]:
    """Parses the command line; a mistake in it ends the process with one line."""
    if {"-h", "--help", "--helpfull", "--helpshort"} & set(argv):
        print(help_text(sys.modules["__main__"].__doc__ or ""))
        sys.exit(0)
    rest = read(flags.FLAGS, argv)
    if not WORKDIR.value:
        fail("--workdir is missing; name a folder for the run: --workdir=runs/x.")
    if INIT_FROM.value and MODE.value != "train":
        fail("--init_from needs --mode=train; --weights evaluates a file.")
    if WEIGHTS.value and (MODE.value != "evaluate" or SWEEP.value or SEEDS.value):
        fail("--weights needs --mode=evaluate, and excludes --sweep and --seeds.")
    if TRANSFER_FROM.value and (MODE.value != "evaluate" or SWEEP.value or SEEDS.value):
        fail("--transfer_from needs --mode=evaluate, and excludes --sweep and --seeds.")
    if PRINT_COMMANDS.value and not (SWEEP.value or SEEDS.value):
        fail("--print_commands needs --sweep or --seeds.")
    if PROFILE.value and (MODE.value != "train" or SWEEP.value or SEEDS.value):
        fail("--profile needs --mode=train, and excludes --sweep and --seeds.")
    return rest


def help_text(examples: str) -> str:
    """The text of --help: examples, then each flag in one line."""
    rows = []
    for flag in flags.FLAGS.flags_by_module_dict()[__name__]:
        text = re.sub(r"^<.*?>: |;\n.*$", "", flag.help or "", flags=re.DOTALL)  # What absl adds.
        if isinstance(flag, flags.EnumFlag) and flag.default is None:
            text = f"{text.removesuffix('.')}: {', '.join(flag.parser.enum_values)}."
        rows.append(f"  --{flag.name:<15} {text}")
    return "\n".join([examples.rstrip(), "", *rows])


def stated_fields() -> set[str]:
    """The fields of the classifier that the command line sets, to any value."""
    overrides = config_flags.get_override_values(flags.FLAGS["config"])
    section = "classifier."
    return {path.removeprefix(section) for path in overrides if path.startswith(section)}


def read(values: flags.FlagValues, argv: Sequence[str]) -> list[str]:
    """Reads the command line into `values`, one of which may be a config.

    A mistake ends the process with one line; a bug in a config file or plugin also prints its
    traceback.
    """
    file = ""
    try:
        arguments = [*argv[:1], *values.read_flags_from_files(list(argv[1:]), force_gnu=False)]
        arguments = find_config(_with_local_paths(arguments))
        configs = [value for _, _, value in _values(arguments, "config")]
        file = configs[-1].partition(":")[0] if configs else ""
        _check_overrides(arguments, has_config=bool(configs))
        ARGUMENTS[:] = arguments
        rest: list[str] = values(arguments)
        if len(rest) > 1:
            raise UsageError(f"{rest[1]!r} is not a flag; flags start with --.")
        if configs:
            config: Any = values["config"].value
            config_files.check_loaded(config, file)
            config.plugins = _plugins(values, config)
            if "init_from" in values and values["init_from"].value:
                config.init_from = values["init_from"].value
            for name in config.plugins:
                file = registry.find_plugin(name)  # The code to blame, if it raises.
                registry.import_plugins([name])
        return rest
    except Exception as error:
        frames, line = config_files.describe(error, file)
        sys.stderr.write(frames)
        fail(line)


def _with_local_paths(argv: Sequence[str]) -> list[str]:
    """Returns the command line with ~ expanded in its paths.

    Raises:
      UsageError: if a path is on a remote system, or the workdir is inside a run.
    """
    arguments = list(argv)
    for name in ("workdir", "weights", "init_from"):
        path_of = run_folder.named if name == "workdir" else paths.local_path
        for place, flag, value in list(_values(arguments, name)):
            if value:
                arguments[place] = f"{flag}{path_of(value, f'--{name}')}"
    return arguments


def _plugins(values: flags.FlagValues, config: Any) -> tuple[str, ...]:
    """The plugins of the config and of the flag --plugin, which not every command has."""
    given = values["plugin"].value if "plugin" in values else ()
    return tuple(dict.fromkeys([*config.plugins, *(given or ())]))


def _check_overrides(argv: Sequence[str], *, has_config: bool) -> None:
    """Raises UsageError if an override names a field that does not exist or is derived."""
    for argument in argv:
        name = OVERRIDE.match(argument)
        if name is None:
            continue
        path = name["path"]
        if not has_config:
            workdirs = [value for _, _, value in _values(argv, "workdir")]
            where = f", and {workdirs[-1]} has no config.json" if workdirs else ""
            raise UsageError(
                f"--config.{path} changes a field, but the command names no config{where}; add "
                "--config=cat_jax:digits, or the workdir of a run."
            )
        if path not in FIELDS:
            raise UsageError(settings.unknown_field(path))
        if FIELDS[path].derived:
            raise UsageError(settings.derived_field(path))


def find_config(argv: Sequence[str]) -> list[str]:
    """Returns the command line with the path of the installed file for `--config=cat_jax:NAME`.

    Without --config it adds the config of the workdir, if there is one.

    Raises:
      UsageError: if the config file does not exist.
    """
    arguments = list(argv)
    configs = list(_values(arguments, "config"))
    for place, flag, value in configs:
        arguments[place] = flag + config_files.path_of(value)
    verifies = "verify" in [value for _, _, value in _values(arguments, "mode")]
    for _, _, workdir in [] if configs or verifies else list(_values(arguments, "workdir"))[-1:]:
        if RunFolder(pathlib.Path(workdir)).config() is not None:
            arguments.insert(1, f"--config={run_config.__file__}:{workdir}")
    return arguments


def _values(argv: Sequence[str], name: str) -> Iterator[tuple[int, str, str]]:
    """Yields (index, prefix, text) of each value of a flag, "--name=VALUE" or "--name VALUE"."""
    for i, argument in enumerate(argv):
        flag, equals, value = argument.partition("=")
        if flag in (f"-{name}", f"--{name}"):
            if equals:
                yield i, f"{flag}=", value
            elif i + 1 < len(argv):
                yield i + 1, "", argv[i + 1]


def fail(text: str) -> NoReturn:
    """Prints an error in one line and exits with status 2."""
    text = f"error: {' '.join(text.split())}"
    print(terminal.coloured(text, terminal.RED, sys.stderr), file=sys.stderr)
    if jax.distributed.is_initialized():
        processes.leave(2)
    sys.exit(2)
