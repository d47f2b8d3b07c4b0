"""Checks and costs of a run: a summary for the end of a run, and every line of them."""

import pathlib
import textwrap
from collections.abc import Sequence
from typing import TextIO

from cat_jax.experiment import labels
from cat_jax.report import grids, tables
from cat_jax.report.grids import Grid
from cat_jax.runtime import terminal
from cat_jax.storage import lines
from cat_jax.storage.lines import Line

MAX_EXPLAINED = 3  # Failed checks in the summary with their text; others only have their name.


def checks_summary(workdir: pathlib.Path, stream: TextIO) -> str:
    """How many checks passed, and the text of those that failed.

    A check that failed on several checkpoints is listed once.

    Args:
      workdir: folder of the run.
      stream: where the text will go; a terminal gets failed checks in red.
    """
    checks = tables.distinct(tables.read(workdir, "checks"))
    failed: dict[str, list[Line]] = {}
    for check in checks:
        if not check["outcome"]["passed"]:
            failed.setdefault(check["conditions"]["check"], []).append(check)
    if not checks:
        return ""
    num_failed = sum(map(len, failed.values()))
    if not num_failed:
        return f"All checks passed ({len(checks)}).\n{_hint(workdir)}"
    head = f"{num_failed} of {len(checks)} checks FAILED: an accuracy may be too high."
    head = f"{terminal.coloured(head, terminal.RED, stream)}\n{_hint(workdir)}"
    texts = [_explained(group, stream) for group in [*failed.values()][:MAX_EXPLAINED]]
    if others := [*failed][MAX_EXPLAINED:]:
        text = f"Also FAILED: {', '.join(others)}."
        texts.append(terminal.coloured(text, terminal.RED, stream))
    return "\n".join([*texts, head])


def _hint(workdir: pathlib.Path) -> str:
    return f"List them: python -m cat_jax.report --details {workdir}"


def _explained(checks: Sequence[Line], stream: TextIO) -> str:
    """A failed check's name in red, and what its first line says."""
    name = f"FAILED: {', '.join(map(labels.check, checks))}"
    text = textwrap.indent(textwrap.fill(checks[0]["outcome"]["text"], terminal.width() - 2), "  ")
    return f"{terminal.coloured(name, terminal.RED, stream)}\n{text}"


def details(workdir: pathlib.Path) -> str:
    """The cost of each attack, and each check with its verdict and its number."""
    texts = [
        textwrap.fill(
            f"{labels.check(check)}: {_verdict(check)}. {check['outcome']['text']}",
            terminal.width(),
            subsequent_indent="  ",
        )
        for check in tables.distinct(tables.read(workdir, "checks"))
    ]
    costs = costs_grid(workdir)
    table = [grids.markdown_table(costs), ""] if costs.body else []
    return "\n".join([*table, *texts])


def _verdict(check: Line) -> str:
    return "passed" if check["outcome"]["passed"] else "FAILED"


def costs_grid(workdir: pathlib.Path) -> Grid:
    """The cost of each attack on each set of weights."""
    head = ["", "images", "attacked", "passes/image", "seconds"]
    rows = []
    for name, line in _named(tables.read(workdir, "results")):
        images, outcome = labels.images(line["conditions"]), line["outcome"]
        cost = [f"{outcome['mean_queries']:.0f}", f"{outcome['seconds']:.1f}"]
        rows.append([name, images, str(outcome["num_attacked"]), *cost])
    return Grid("costs", "", head, rows)


def _named(results: Sequence[Line]) -> list[tuple[str, Line]]:
    """Lines of results.jsonl with labels such as "best pgd20 at 0.15", without curves."""
    ids = [id(line) for line in tables.distinct(results)]
    weights = [
        (name, line)
        for name, line in zip(labels.all_weights(results), results, strict=True)
        if id(line) in ids and not lines.is_curve(line)
    ]
    attacks = labels.attacks([line["conditions"] for _, line in weights])
    return [(f"{name} {text}", line) for (name, line), text in zip(weights, attacks, strict=True)]
