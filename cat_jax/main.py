"""Trains and evaluates one experiment.

    python -m cat_jax.main --config=configs/digits.py:cat_cent --workdir=runs/digits

trains, or goes on if the workdir holds a checkpoint, and then attacks checkpoints best/ and last/:
flags in evaluation/, accuracies in results.jsonl, a table beside the published numbers.

    python -m cat_jax.main --mode=evaluate --workdir=runs/digits

only attacks. Any field of the config can be overridden: --config.method.beta1=0.1. The fields
are described in configs/default.py. Exit status: 0 done, or stopped by a signal with all
saved; 2 something to mend, said in one line.
"""

import contextlib
import logging
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any, NoReturn

import jax
from absl import app, flags
from absl import logging as absl_logging
from ml_collections import ConfigDict, config_flags
from tqdm import tqdm

from cat_jax import build, checkpoint, data, masks, settings, train, validation, workdirs
from cat_jax.evaluate import Evaluator, Result
from cat_jax.report import tables
from cat_jax.state import TrainState
from cat_jax.types import UsageError

logger = logging.getLogger(__name__)
MASKED = 1000  # Test images whose masks are described.

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Config file and variant: configs/digits.py:cat_cent, or cat_jax:digits."
)
WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run; made if it is not there.")
MODE = flags.DEFINE_enum("mode", "train", ["train", "evaluate"], "Train first, or only evaluate.")


def run(config: ConfigDict | None, workdir: pathlib.Path, mode: str) -> None:
    """Trains if asked to, and evaluates.

    Raises:
      UsageError: for what the caller can mend.
    """
    kept = workdirs.read_config(workdir)
    if config is None and kept is None:
        raise UsageError(f"{workdir} holds no config.json; name one: --config=configs/digits.py.")
    config = settings.resolve(config) if config is not None else ConfigDict(kept)
    if kept is not None:
        workdirs.refuse_other(workdir, kept, settings.as_dict(config))
    devices = jax.local_devices()
    dataset = data.load(config.dataset, config.data_dir)
    experiment = build.experiment(config, dataset.spec, devices)
    if mode == "train":
        workdirs.claim(workdir)
        workdirs.write_config(workdir, settings.as_dict(config))
        logger.info(
            "%s %s: %d steps of %d images on %d %s device(s), in %s",
            *(config.dataset, config.variant, experiment.num_steps, config.batch_size),
            *(len(devices), devices[0].platform, workdir),
        )
        if not train.train(experiment, dataset, workdir, devices):
            logger.info("To go on, give the same command again.")
            return
    evaluate(experiment, dataset, workdir, devices)


def evaluate(
    experiment: build.Experiment,
    dataset: data.Dataset,
    workdir: pathlib.Path,
    devices: list[jax.Device],
) -> None:
    """Attacks best/ and last/, writes results.jsonl and prints the table."""
    config, attacks = experiment.config, build.evaluation_attacks(experiment.config)
    split = dataset.test.first(config.test.num_examples or len(dataset.test.labels))
    evaluator = Evaluator(experiment.classifier, config.seed, config.test.batch_size, devices)
    template = jax.eval_shape(experiment.init)
    of_attacks = f"{config.seed} {settings.fingerprint(config.test)}"
    done: dict[tuple[int, str], dict[str, Result]] = {}
    for name, folder, suffix in evaluated(config.average_decay > 0):
        found = checkpoint.newest(workdir / "checkpoints" / folder)
        if found is None:
            raise UsageError(f"{workdir} holds no checkpoint {folder}/; train first: --mode=train.")
        state = checkpoint.restore(found, template)  # In the end that of last/.
        this = found.step, suffix
        if this not in done:
            variables, results = validation.weights(state)[suffix], done.setdefault(this, {})
            for attack in attacks:
                identity = (
                    f"{found.digest}{suffix} {attack.name} {of_attacks} {dataset.fingerprint}"
                )
                file = workdir / "evaluation" / f"step{found.step}{suffix}_{attack.name}.npz"
                survivors = results[attack.after].flags if attack.after else None
                with progress(f"{name} {attack.name}", len(split.labels)) as told:
                    kept = dict(file=file, identity=identity, on_batch=told)
                    results[attack.name] = evaluator(
                        variables, attack, split, still_right=survivors, **kept
                    )
        records = [
            describe(experiment, dataset, name, found.step, result)
            for result in done[this].values()
        ]
        workdirs.write_results(workdir, records)
    if attacks:
        print(tables.runs_table([workdir]))
        if config.mask_net.name != "OnesMask" and dataset.spec.image_shape[-1] == 1:
            print(describe_mask(experiment, split.first(MASKED), state))


def describe_mask(experiment: build.Experiment, split: data.Split, state: TrainState) -> str:
    """What g lets through on the digits of `split`, and around them."""
    means = masks.mask_means(
        experiment.classifier,
        experiment.mask_net,
        experiment.method.attack,
        state,
        split,
        seed=experiment.config.seed,
        batch_size=experiment.config.test.batch_size,
    )
    return (
        f"Mean of M over the first {len(split.labels)} test images: {means.digit:.3f} on the digit "
        f"(pixels of {masks.INK} and more), {means.background:.3f} on the background."
    )


def evaluated(averaged: bool) -> list[tuple[str, str, str]]:
    """What is attacked: its name in the results, the checkpoint's folder, which weights in it."""
    raw = [("best", "best", ""), ("last", "last", "")]
    averages = [("best_average", "best_average", "_average"), ("last_average", "last", "_average")]
    return raw + (averages if averaged else [])


def describe(
    experiment: build.Experiment, dataset: data.Dataset, name: str, step: int, result: Result
) -> dict[str, Any]:
    """A line of results.jsonl."""
    config = experiment.config
    return {
        "dataset": config.dataset,
        "classifier": config.classifier.name,
        "method": config.method.name,
        "variant": config.variant,
        "seed": config.seed,
        "checkpoint": name,
        "step": step,
        "attack": result.attack,
        "accuracy": result.accuracy,
        "num_examples": len(result.flags),
        "interval": result.interval,
        "conventions": config.conventions,
        "selection": config.selection if config.num_validation else "none",
        "data_sha": dataset.fingerprint[:12],
        "config_sha": settings.fingerprint(config),
        "git_sha": git_sha(),
        "versions": versions(),
        "seconds": round(result.seconds, 2),
    }


def git_sha() -> str | None:
    """Commit of the checkout that this code is in, with + if it was changed since."""
    folder = pathlib.Path(__file__).parent
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--abbrev=12"]
    with contextlib.suppress(OSError):
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        return found.stdout.strip() or None
    return None


def versions() -> dict[str, str]:
    """Of what decides the numbers."""
    names = ("cat_jax", "jax", "jaxlib", "flax", "optax", "numpy")
    found = {"python": sys.version.split()[0]}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@contextlib.contextmanager
def progress(text: str, total: int) -> Iterator[Any]:
    """A bar over examples; yields what is to be told how many are done."""
    with tqdm(total=total, desc=text, unit="image", disable=None, leave=False) as bar:
        yield lambda count: bar.update(count - bar.n)


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

    Raises:
      UsageError: if there is no such file.
    """
    found = list(argv)
    for i, argument in enumerate(found):
        flag, equals, value = argument.partition("=")
        if flag.lstrip("-") != "config" or not flag.startswith("-"):
            continue
        at = i if equals else i + 1  # "--config=FILE" or "--config FILE".
        value = value if equals else "".join(found[at : at + 1])
        installed = pathlib.Path(__file__).parent / "configs"
        if value.startswith("cat_jax:"):
            name, *variant = value.removeprefix("cat_jax:").split(":", 1)
            value = ":".join([str(installed / f"{name}.py"), *variant])
        path = pathlib.Path(value.partition(":")[0])
        if not path.is_file():
            names = sorted(f.stem for f in installed.glob("[!_]*.py") if f.stem != "default")
            raise UsageError(
                f"There is no config file {path}; name one, or an installed one as "
                f"--config=cat_jax:NAME with NAME one of {', '.join(names)}."
            )
        found[at] = f"{flag}={value}" if equals else value
    return found


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
        run(CONFIG.value, pathlib.Path(str(WORKDIR.value)), MODE.value)
    except UsageError as error:
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
