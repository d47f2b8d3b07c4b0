"""The runs in a folder: which row each one is of, how far it is, and what it found.

A run is known by its config.json, never by its folder's name.
"""

import json
import logging
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from cat_jax.paper import measured
from cat_jax.paper.measured import Run
from cat_jax.paper.rows import SIZES, Row, Table
from cat_jax.storage import files, run_folder

logger = logging.getLogger(__name__)
LENGTH = ("num_epochs", "num_steps")
LINES = ("results", "metrics", "commands", "checks")
NEEDED = {"dataset", "variant", "seed", *LENGTH, "num_validation", "batch_size"}

# Fields that a command may set and the run is still as its row has it: they change no number, or
# go with the length of the training.
HARMLESS = {
    *("seed", "data_dir", "evaluation", "log_every", "save_every", "keep_checkpoints", "parallel"),
    *("steps_per_dispatch", "remat"),
    *("mask_optimizer.drop_epochs", "attack.tau_epochs"),
    *("test.num_examples", "test.num_checked", "test.batch_size", "test.num_restarts"),
    *("test.unclipped", "test.subset_seed"),
}


def find(folder: pathlib.Path) -> list[Run]:
    """Every run below a folder, in the order of their names; none if there is no such folder."""
    found = []
    for path in sorted(folder.rglob("config.json")):
        try:
            config = flat(json.loads(path.read_text()))
            run = Run(path.parent, config, *map(_lines(path.parent), LINES))
        except (ValueError, AttributeError, OSError) as error:
            logger.warning("%s is left out: %s", path.parent, error)
            continue
        if config.keys() >= NEEDED:  # Else it is of another program.
            found.append(run)
    return found


def _lines(workdir: pathlib.Path) -> Any:
    return lambda name: files.read_json_lines(workdir / f"{name}.jsonl")


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"attack": {"epsilon": x}} as {"attack.epsilon": x}; lists as tuples."""
    made: dict[str, Any] = {}
    for field, value in config.items():
        path = f"{prefix}{field}"
        if isinstance(value, dict):
            made |= flat(value, f"{path}.")
        else:
            made[path] = tuple(value) if isinstance(value, list) else value
    return made


def is_of(run: Run, row: Row) -> bool:
    """Whether a run is one of the row's, whole or shortened, under any conventions.

    A field that is newer than the run's config.json is taken to have the row's value.
    """
    return all(_same(run.config.get(name, value), value) for name, value in row.telling().items())


def _same(left: Any, right: Any) -> bool:
    """Whether two values of a field are one; radii may be written in two ways, "8/20" and "0.4"."""
    try:
        return left == right or float(Fraction(left)) == float(Fraction(right))
    except (TypeError, ValueError):
        return False


def shortened(run: Run, row: Row) -> str:
    """ "2 of 40 epochs" or "500 steps", for a run that is not as long as the row's; or "".

    The rule: num_epochs is not the row's, or num_steps is set. So it does not matter how the run
    came to be short, by --scale or by hand.
    """
    epochs = row.expected()["num_epochs"]
    if run.config.get("num_steps"):
        return f"{run.config['num_steps']} steps"
    return (
        ""
        if run.config["num_epochs"] == epochs
        else f"{run.config['num_epochs']} of {epochs} epochs"
    )


def set_besides(run: Run, row: Row) -> list[str]:
    """ "attack.num_steps=5": what the run's commands set and its row does not speak of.

    Of what the configs hold besides, this module knows nothing: a run without a command, or of a
    config file that was changed, is taken to be as its row has it.
    """
    words = [word for line in run.commands for word in shlex.split(line["command"])]
    found = [word.removeprefix("--config.") for word in words if word.startswith("--config.")]
    known = HARMLESS | row.expected().keys()
    return sorted({text for text in found if text.partition("=")[0] not in known})


def differences(run: Run, row: Row, table: Table) -> tuple[str, ...]:
    """In what the run is not as the row says, in words: length, conventions, images, fields."""
    expected = row.expected()
    said = [shortened(run, row)]
    for name in ("conventions", "selection"):
        if run.config.get(name, expected[name]) != expected[name]:
            said.append(f"{name} {run.config[name]}")
    held_out = run.config.get("num_validation", expected["num_validation"])
    if held_out != expected["num_validation"]:
        said.append(f"{held_out} held out" if held_out else "none held out, last checkpoint")
    full = SIZES[run.config["dataset"]][1]
    size = _tested(run, table) or run.config.get("test.num_examples") or full
    said.append(f"{size} test images" if size < full else "")
    said += set_besides(run, row)
    return tuple(text for text in said if text)


def _tested(run: Run, table: Table) -> int:
    """On how many images, where that can be chosen; 0 if it is not known."""
    if table.curves or table.columns[0].startswith("mask_"):
        return SIZES[run.config["dataset"]][1]
    return min((number.size for number in measured.numbers(run, table).values()), default=0)


def chosen(
    found: Sequence[Run],
    row: Row,
    seeds: Sequence[int] | None = None,
    length: tuple[int, int] | None = None,
) -> list[Run]:
    """The runs of a row, of these seeds; with `length`, only those of its num_epochs, num_steps."""
    made = [run for run in found if is_of(run, row)]
    if seeds is not None:
        made = [run for run in made if run.seed in seeds]
    if length is not None:
        made = [run for run in made if length == tuple(map(run.config.get, LENGTH))]
    return made


def status(run: Run | None, row: Row, table: Table) -> str:
    """ "done", "missing", or how far it is."""
    if run is None:
        return "missing"
    total, found = row.total_steps(run.config), measured.numbers(run, table)
    if run.diverged:
        return f"diverged: {run_folder.first_non_finite(run.metrics)} of {total}"
    if run.step < total:
        return f"in progress, step {run.step} of {total}"
    lacking = [column for column in table.columns if column not in found]
    if not lacking:
        return "done"
    return f"trained, not evaluated: {', '.join(lacking)}"
