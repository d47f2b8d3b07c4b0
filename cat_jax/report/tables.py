"""Tables of runs, as Markdown."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from cat_jax.report import grids
from cat_jax.report.grids import Grid
from cat_jax.report.published_numbers import Published, published
from cat_jax.storage import files

DASH = "-"


def runs_table(workdirs: Sequence[pathlib.Path]) -> str:
    """`runs_grid` as Markdown, below its caption."""
    grid = runs_grid(workdirs)
    return f"{grid.caption}\n\n{grids.markdown_table(grid)}"


def runs_grid(workdirs: Sequence[pathlib.Path]) -> Grid:
    """One row for each run and checkpoint, and one for its published numbers; in percent.

    An attack's cell has the accuracy and, behind it, half its 95% interval's width.
    """
    rows: list[tuple[str, Mapping[str, Any]]] = []
    attacks: dict[str, None] = {}  # An ordered set.
    for workdir in workdirs:
        records = _largest(files.read_json_lines(workdir / "results.jsonl"))
        attacks |= dict.fromkeys(r["attack"] for r in records)
        for checkpoint in dict.fromkeys(r["checkpoint"] for r in records):
            of_checkpoint = {r["attack"]: r for r in records if r["checkpoint"] == checkpoint}
            rows.append((f"{workdir.name}, {checkpoint}", of_checkpoint))
        if records and (reference := published(_config(workdir))):
            rows.append(("published", reference))
        if not records:
            rows.append((f"{workdir.name}: no results yet", {}))
    attacks = dict.fromkeys(sorted(attacks, key=lambda attack: attack != "natural"))
    head = ["", *attacks]
    body = [[name, *(_cell(cells.get(attack)) for attack in attacks)] for name, cells in rows]
    return Grid("runs", _caption(workdirs), head, body)


def costs_table(workdir: pathlib.Path) -> str:
    """`costs_grid` as Markdown."""
    return grids.markdown_table(costs_grid(workdir))


def costs_grid(workdir: pathlib.Path) -> Grid:
    """One row for each checkpoint and attack: what it cost."""
    head = ["", "still right", "of", "attacked", "forward passes each", "seconds"]
    rows = []
    for r in distinct(files.read_json_lines(workdir / "results.jsonl")):
        if "mean_queries" not in r:
            continue  # Of before costs were kept.
        right = round(r["accuracy"] * r["num_examples"])
        counts = [str(right), str(r["num_examples"]), str(r["num_attacked"])]
        cost = [f"{r['mean_queries']:.0f}", f"{r['seconds']:.1f}"]
        rows.append([f"{r['checkpoint']} {r['attack']}", *counts, *cost])
    return Grid("costs", "", head, rows)


def checks_list(workdir: pathlib.Path) -> str:
    """One line for each checkpoint and check, in the order of the checks; failures say FAILED."""
    lines = []
    for found in distinct(files.read_json_lines(workdir / "checks.jsonl")):
        verdict = "ok" if found["passed"] else "FAILED"
        lines.append(f"{found['checkpoint']} {found['name']}: {verdict}: {found['text']}")
    return "\n".join(lines)


def _largest(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of each checkpoint and attack, the evaluation on the most examples."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for record in records:
        key = record["checkpoint"], record["attack"]
        if key not in found or record["num_examples"] > found[key]["num_examples"]:
            found[key] = record
    return list(found.values())


def distinct(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those of each checkpoint, but of last/ only if it is not best/ again."""
    same = {r["step"] for r in records if r["checkpoint"] == "best"}
    return [r for r in records if r["checkpoint"] != "last" or r["step"] not in same]


def _cell(value: Mapping[str, Any] | Published | None) -> str:
    if value is None:
        return DASH
    if isinstance(value, Published):
        return f"{value.mean:.1f}" + (f" ± {value.std:g}" if value.std is not None else "")
    low, high = value["interval"]
    return f"{100 * value['accuracy']:.1f} (±{50 * (high - low):.1f})"


def _caption(workdirs: Sequence[pathlib.Path]) -> str:
    lines = []
    for workdir in workdirs:
        records = _largest(files.read_json_lines(workdir / "results.jsonl"))
        for record in records[:1]:
            lines.append(
                f"{workdir.name}: {record['dataset']}, {record['variant']}, seed "
                f"{record['seed']}, conventions {record['conventions']}, best/ chosen on: "
                f"{record['selection']}, {_sizes(records)} test images"
            )
    return "\n".join([*lines, "Accuracy in percent (± half of the 95% Wilson interval)."])


def _sizes(records: Sequence[Mapping[str, Any]]) -> str:
    """How many examples: "1000", or "1000 (standard) and 10000 (natural, pgd20)"."""
    attacks: dict[int, dict[str, None]] = {}
    for record in records:
        attacks.setdefault(record["num_examples"], {})[record["attack"]] = None
    if len(attacks) == 1:
        return str(*attacks)
    return " and ".join(f"{size} ({', '.join(names)})" for size, names in sorted(attacks.items()))


def _config(workdir: pathlib.Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((workdir / "config.json").read_text())
    return config
