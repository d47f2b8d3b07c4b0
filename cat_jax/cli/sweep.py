"""Several values of one or more fields, and several seeds: a run for each combination."""

import itertools
import logging
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from cat_jax.errors import UsageError
from cat_jax.experiment import settings
from cat_jax.experiment.evaluation_attacks import evaluation_attacks
from cat_jax.experiment.fields import FIELDS
from cat_jax.storage import files, lines, run_folder

logger = logging.getLogger(__name__)
TRUTHS = {"true": True, "false": False}


class Axis(NamedTuple):
    """A field, by its full path, and the values that it takes in turn."""

    path: str
    values: tuple[Any, ...]


class Point(NamedTuple):
    """One combination: its folder's name, and the config."""

    name: str
    config: ConfigDict


def axes(sweeps: Sequence[str], seeds: Sequence[str], config: ConfigDict) -> list[Axis]:
    """The axes that "beta1=0.05,0.1" and the seeds stand for, in their order.

    Raises:
      UsageError: for a name that is no field, or that several fields have; for a value of another
        type, and for one that is repeated.
    """
    texts = [*sweeps, *([f"seed={','.join(seeds)}"] if seeds else ())]
    sweep_axes = [_axis(text, config) for text in texts]
    paths = [axis.path for axis in sweep_axes]
    for path in paths:
        if paths.count(path) > 1:
            raise UsageError(f"{path} is swept twice; give all its values in one --sweep.")
    return sweep_axes


def points(config: ConfigDict, along: Sequence[Axis]) -> list[Point]:
    """The product of the axes; the last one changes fastest."""
    grid = []
    for values in itertools.product(*(axis.values for axis in along)):
        changes = {axis.path: value for axis, value in zip(along, values, strict=True)}
        changed = config.copy_and_resolve_references()
        changed.update_from_flattened_dict(changes)
        settings.resolve(changed)  # Refuses a wrong value before anything is trained.
        words = [f"{path.rpartition('.')[2]}_{value}" for path, value in changes.items()]
        grid.append(Point(re.sub(r"[^A-Za-z0-9_.-]", "-", "_".join(words)), changed))
    names = [point.name for point in grid]
    if len(set(names)) < len(names):
        raise UsageError("Two points of the sweep have one name; sweep fields of other names.")
    return grid


def run_all(
    grid: Sequence[Point],
    workdir: pathlib.Path,
    run: Callable[[ConfigDict, pathlib.Path], bool],
    *,
    done: Callable[[ConfigDict, pathlib.Path], bool],
) -> list[pathlib.Path]:
    """Runs each point in its own folder below `workdir`, one after another; skips finished ones.

    A point that fails does not keep the others from running.

    Args:
      grid: the points.
      workdir: folder of the sweep.
      run: config, workdir -> False if a signal stopped the run, which ends the sweep.
      done: config, workdir -> whether nothing is left to do.

    Returns:
      The workdirs of the finished points.

    Raises:
      UsageError: in the end, naming the points that failed.
    """
    finished, failed = [], []
    for i, point in enumerate(grid):
        folder = workdir / point.name
        if done(point.config, folder):
            logger.info("%d of %d: %s is finished.", i + 1, len(grid), folder)
            finished.append(folder)
            continue
        logger.info("%d of %d: %s", i + 1, len(grid), folder)
        try:
            if not run(point.config, folder):
                return finished
            finished.append(folder)
        except UsageError as error:
            logger.error("%s failed: %s", folder, error)
            failed.append(f"{point.name} ({error})")
    if failed:
        raise UsageError(f"{len(failed)} of {len(grid)} runs failed: {'; '.join(failed)}")
    return finished


def is_done(config: ConfigDict, workdir: pathlib.Path) -> bool:
    """Whether a workdir has this config, is trained, and has the results of every attack.

    It reads the files of the workdir alone: no data, no devices.
    """
    kept, resolved = run_folder.read_config(workdir), settings.resolve(config)
    if kept is None or settings.fingerprint(kept) != settings.fingerprint(resolved):
        return False
    step = _last_step(workdir, resolved)
    results = lines.with_conditions(files.read_json_lines(workdir / "results.jsonl"))
    done = [
        line["conditions"].items()
        for line in results
        if (line["attacked"]["checkpoint"], line["attacked"]["step"]) == ("last", step)
    ]
    attacks = [attack.conditions.items() for attack in evaluation_attacks(resolved)]
    return bool(done) and all(any(attack <= one for one in done) for attack in attacks)


def _last_step(workdir: pathlib.Path, config: ConfigDict) -> int | None:
    """The step at which training ended; None if it has not reached its end."""
    metrics = run_folder.read_lines(workdir, "metrics")
    if not metrics:
        return None
    step, epoch = int(metrics[-1]["step"]), float(metrics[-1].get("epoch", 0))
    before = epoch * (step - 1) / step
    is_end = step == config.num_steps if config.num_steps else before < config.num_epochs <= epoch
    return step if is_end else None


def _axis(text: str, config: ConfigDict) -> Axis:
    name, equals, values = text.partition("=")
    if not equals or not values or "" in values.split(","):
        raise UsageError(f"--sweep is {text!r}; expected FIELD=VALUE,VALUE such as beta1=0.1,0.3.")
    path = _path(name)
    read = tuple(_value(path, value, config) for value in values.split(","))
    if len(set(read)) < len(read):
        raise UsageError(f"--sweep={text} has a value twice; give each once.")
    return Axis(path, read)


def _path(name: str) -> str:
    """The full path of the one field that a name can mean."""
    paths = [name] if name in FIELDS else [path for path in FIELDS if path.endswith(f".{name}")]
    if not paths:
        raise UsageError(settings.unknown_field(name))
    if len(paths) > 1:
        raise UsageError(f"{name!r} can be {' or '.join(paths)}; name one of them.")
    if FIELDS[paths[0]].derived:
        raise UsageError(settings.derived_field(paths[0]))
    return paths[0]


def _value(path: str, text: str, config: ConfigDict) -> Any:
    """The text as the field's type has it, as --config.FIELD=VALUE would read it."""
    *sections, field = path.split(".")
    for section in sections:
        config = config[section]
    kind = config.get_type(field)
    try:
        if kind is bool:
            return TRUTHS[text.lower()]
        if kind is tuple:
            raise ValueError("a tuple")
        return kind(text)
    except (ValueError, KeyError):
        raise UsageError(
            f"--sweep has {text!r} for {path}; expected {kind.__name__}"
            f"{', which cannot be swept' if kind is tuple else ''}."
        ) from None
