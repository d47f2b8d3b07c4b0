"""Sweeps: one run for each combination of values of fields, and of seeds."""

import itertools
import logging
import pathlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from cat_jax.errors import UsageError
from cat_jax.experiment import settings, suites
from cat_jax.experiment.evaluation_attacks import evaluation_attacks
from cat_jax.experiment.fields import FIELDS
from cat_jax.storage import lines
from cat_jax.storage.run_folder import RunFolder

logger = logging.getLogger(__name__)
TRUTHS = {"true": True, "false": False}
# The flags of a sweep that its runs do not get, and whether they have values.
OF_SWEEPS = {"sweep": True, "seeds": True, "workdir": True, "print_commands": False}


class Axis(NamedTuple):
    """The full path of a field, and its values."""

    path: str
    values: tuple[Any, ...]


class Point(NamedTuple):
    """One combination: its folder name, its config, and the values of its fields by their paths."""

    name: str
    config: ConfigDict
    values: Mapping[str, Any]


def axes(sweeps: Sequence[str], seeds: Sequence[str], config: ConfigDict) -> list[Axis]:
    """The axes of a sweep.

    Args:
      sweeps: texts such as "beta1=0.05,0.1".
      seeds: seeds; the last axis, if there are any.
      config: config that the sweep changes.

    Raises:
      UsageError: if a name is no field or fits several fields, a value has another type, or a field
        or value is repeated.
    """
    texts = [*sweeps, *([f"seed={','.join(seeds)}"] if seeds else ())]
    sweep_axes = [_axis(text, config) for text in texts]
    paths = [axis.path for axis in sweep_axes]
    for path in paths:
        if paths.count(path) > 1:
            raise UsageError(f"{path} is swept twice; give all its values in one --sweep.")
    return sweep_axes


def points(config: ConfigDict, along: Sequence[Axis]) -> list[Point]:
    """All combinations of the axes; the last axis changes fastest."""
    grid = []
    for values in itertools.product(*(axis.values for axis in along)):
        changes = {axis.path: value for axis, value in zip(along, values, strict=True)}
        changed = config.copy_and_resolve_references()
        changed.update_from_flattened_dict(changes)
        settings.resolve(changed)  # Because a wrong value should fail before the first training.
        words = [f"{path.rpartition('.')[2]}_{value}" for path, value in changes.items()]
        grid.append(Point(re.sub(r"[^A-Za-z0-9_.-]", "-", "_".join(words)), changed, changes))
    names = [point.name for point in grid]
    if len(set(names)) < len(names):
        raise UsageError(
            "Two points of the sweep would share a folder name; sweep fields with other names."
        )
    return grid


def command_lines(
    grid: Sequence[Point], workdir: pathlib.Path, arguments: Sequence[str]
) -> list[str]:
    """A command for each point, quoted for a shell, such as for the jobs of a cluster.

    Args:
      grid: the points.
      workdir: folder of the sweep.
      arguments: command line of the sweep, without the program.
    """
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, _ = word.lstrip("-").partition("=")
        if not (word.startswith("-") and name in OF_SWEEPS):
            rest.append(word)
        elif OF_SWEEPS[name] and not equals:
            next(words, None)  # Its value.
    return [
        shlex.join(
            [
                *("python", "-m", "cat_jax.main", *rest, f"--workdir={workdir / point.name}"),
                *(f"--config.{path}={value}" for path, value in point.values.items()),
            ]
        )
        for point in grid
    ]


def run_all(
    grid: Sequence[Point],
    workdir: pathlib.Path,
    run: Callable[[ConfigDict, pathlib.Path], bool],
    *,
    done: Callable[[ConfigDict, pathlib.Path], bool],
) -> list[pathlib.Path]:
    """Runs each point in its own folder below `workdir`, one after another; skips finished ones.

    If a point fails, the sweep continues with the next one.

    Args:
      grid: the points.
      workdir: folder of the sweep.
      run: (config, workdir) -> False if a signal stopped the run; that ends the sweep.
      done: (config, workdir) -> whether the run is complete.

    Returns:
      The workdirs of the finished points.

    Raises:
      UsageError: at the end, with the names of the points that failed.
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
    """Whether a workdir has this config, is trained, and has the results of its whole evaluation.

    It reads only the files of the workdir, and needs neither data nor devices.
    """
    folder, resolved = RunFolder(workdir), settings.resolve(config)
    stored = folder.config()
    if stored is None or settings.fingerprint(stored) != settings.fingerprint(resolved):
        return False
    # The weights that are attacked after all others.
    last = "last" if resolved.average.kind == "none" else "last_average"
    step = _last_step(folder, resolved)
    done = [
        line["conditions"].items()
        for line in folder.read_lines("results")
        if (line["attacked"]["checkpoint"], line["attacked"]["step"]) == (last, step)
    ]
    expected = [attack.conditions for attack in evaluation_attacks(resolved)]
    # All radii of a curve are written at once, and so are all corruptions.
    expected += [{"attack": curve.name} for curve, _ in suites.curves(resolved, num_pixels=1)]
    expected += [{"attack": lines.CORRUPTION}] if suites.has_corruptions(resolved) else []
    return bool(done) and all(any(one.items() <= found for found in done) for one in expected)


def _last_step(folder: RunFolder, config: ConfigDict) -> int | None:
    """The last step of the training; None if the training is not complete."""
    metrics = folder.read_lines("metrics")
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
        raise UsageError(f"--sweep={text} has a value twice; give every value once.")
    return Axis(path, read)


def _path(name: str) -> str:
    """The full path of the only field with this name."""
    paths = [name] if name in FIELDS else [path for path in FIELDS if path.endswith(f".{name}")]
    if not paths:
        raise UsageError(settings.unknown_field(name))
    if len(paths) > 1:
        raise UsageError(f"{name!r} fits several fields, {', '.join(paths)}; give a full path.")
    if FIELDS[paths[0]].derived:
        raise UsageError(settings.derived_field(paths[0]))
    return paths[0]


def _value(path: str, text: str, config: ConfigDict) -> Any:
    """Converts a text to the type of the field, like --config.FIELD=VALUE."""
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
