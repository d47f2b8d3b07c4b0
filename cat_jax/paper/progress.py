"""Reports which runs of a table are done, missing or without a row, and lists what to launch."""

import collections
from collections.abc import Iterable, Sequence

from cat_jax.paper import commands, measured
from cat_jax.paper.matches import Match
from cat_jax.paper.query import Query
from cat_jax.paper.rows import Row, Table
from cat_jax.report.grids import Grid
from cat_jax.storage import lines

Status = tuple[Row, int, str]
MAX_NAMES = 5  # A longer list of folders ends in a count.


def statuses(table: Table, query: Query) -> list[Status]:
    """Returns the status of each row and seed to launch."""
    return [
        (row, seed, _status(match, table, query))
        for row in table.rows
        for seed, match in query.launched(row)
    ]


def _status(match: Match | None, table: Table, query: Query) -> str:
    text = status(match, table)
    if match and text == "done" and query.scale == 1 and match.differences:
        return f"trained, evaluated in part: {', '.join(match.differences)}"
    return text


def status(match: Match | None, table: Table) -> str:
    """Returns "done", "missing", or the progress of a run."""
    if match is None:
        return "missing"
    run = match.run
    total, numbers = match.row.total_steps(run.config), measured.numbers(run, table)
    if run.diverged:
        return f"diverged: {lines.first_non_finite(run.metrics)} of {total}"
    if match.progress:
        return f"in progress, {match.progress}"
    lacking = [column for column in table.columns if column not in numbers]
    if not lacking:
        return "done"
    return f"trained, not evaluated: {', '.join(lacking)}"


def status_grid(tables: Sequence[Table], query: Query) -> Grid:
    """Returns the statuses as text."""
    body = [
        [table.name, row.label, str(seed), text]
        for table in tables
        for row, seed, text in statuses(table, query)
    ]
    scale = "" if query.scale == 1 else f" at scale {query.scale:g}"
    caption = f"Runs in {query.folder}{scale}"
    notes = filter(None, [_without_row(tables, query)])
    return Grid("status", caption, ["table", "trained", "seed", "status"], body, list(notes))


def summary(table: Table, query: Query) -> str:
    """Counts the runs that are done and those without a row, and states the progress of others."""
    runs = statuses(table, query)
    done = sum(text == "done" for _, _, text in runs)
    texts = [f"Runs done: {done} of {len(runs)} in {query.folder}."]
    texts += [
        f"{row.label} seed {seed}: {text}."
        for row, seed, text in runs
        if text not in ("done", "missing")
    ]
    return " ".join(filter(None, [*texts, *_unprinted(table, query), _without_row([table], query)]))


def _unprinted(table: Table, query: Query) -> list[str]:
    """Counts the runs that differ from their row and have no number yet.

    Runs that only have not ended are left out, because the statuses name them.
    """
    kinds = collections.Counter(
        ", ".join(match.differences)
        for row in table.rows
        for match in query.of(row)
        if match.differences not in ((), (match.progress,))
        and not measured.numbers(match.run, table)
    )
    return [f"Without numbers here: {count} with {kind}." for kind, count in kinds.items()]


def _without_row(tables: Iterable[Table], query: Query) -> str:
    """Counts the runs without a row in these tables, and names those without any row."""
    rows = [row for table in tables for row in table.rows]
    beside = {match.run.workdir for row in rows for match in query.matches.of(row)}
    if not (count := len({run.workdir for run in query.runs} - beside)):
        return ""
    text = f"{count} of {len(query.runs)} runs belong to no row here"
    if names := [run.workdir.name for run in query.matches.others]:
        rest = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        text += f"; without a row in the paper: {', '.join(names[:MAX_NAMES])}{rest}"
    return f"{text}."


def launched(
    tables: Iterable[Table], query: Query, overrides: Sequence[str], todo: bool
) -> list[str]:
    """Returns one command for each run of the tables, or only for unfinished runs with `todo`."""
    unfinished: dict[str, bool] = {}
    for table in tables:
        for row, seed, text in statuses(table, query):
            command = commands.command(row, seed, query.folder, query.scale, overrides)
            unfinished[command] = unfinished.get(command, False) or text != "done"
    return [command for command, is_unfinished in unfinished.items() if is_unfinished or not todo]
