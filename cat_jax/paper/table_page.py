"""One table of the paper as one HTML file that needs no other: numbers, figure, and their runs."""

import html
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cat_jax.paper import cells, runs, sheet
from cat_jax.paper.measured import Run
from cat_jax.paper.rows import Table
from cat_jax.paper.sheet import Asked
from cat_jax.report import html_parts, page, plots, render, run_curves, tables
from cat_jax.report.html_parts import cell, paragraph, picture, row, texts
from cat_jax.report.render import Grid

WORDS = {
    sheet.NO_RUN: "none",
    "done": "better",
    "missing": "none",
}
MARKS = {cells.BETTER: "better", cells.WORSE: "worse"}

CURVES = "A line for each run, in the colour of its row; of long ones the means of epochs."


class Shown(NamedTuple):
    """A run of the table.

    Attributes:
      name: its row, and in what it differs from it.
      status: in words.
    """

    name: str
    status: str
    run: Run

    @property
    def full_name(self) -> str:
        """With its seed."""
        return f"{self.name}, seed {self.run.seed}"


def text_page(grid: Grid) -> str:
    """The HTML of a table that reads no runs of its own."""
    body = [html_grid(grid), *map(_note, grid.notes)]
    return html_parts.document(grid.caption, "\n".join(body))


def table_page(table: Table, grid: Grid, figure: bytes | None, asked: Asked) -> str:
    """The HTML of a table of numbers; it says what is missing.

    Args:
      table: one of the paper's.
      grid: the same filled, as `sheet.grid` does.
      figure: the table's own, as PNG.
      asked: as on the command line.
    """
    shown = list(_shown(table, asked))
    named = [(each.name, each.run.metrics) for each in shown]
    *notes, progress = grid.notes
    numbers = [html_grid(grid), *map(_note, notes)]
    sections = [
        ("Numbers", "\n".join(numbers)),
        ("Figure", picture(figure, "Figure", _figure_caption(table))),
        ("Runs", f"{_note(progress)}\n{_statuses(table, asked)}\n{_others(table, asked, shown)}"),
        ("Training", _training(named) if shown else _none_yet(table)),
        ("Masks", _masks(shown, named)),
        ("Robustness against epsilon", _radii(shown, named)),
        ("Checks against false robustness", _checks(shown)),
        ("How each run was made", "\n".join(map(_made, shown))),
    ]
    body = [
        _scaled(asked),
        paragraph(grid.caption.removeprefix(f"{table.title}. ")),
        _progress(table, asked),
        html_parts.contents(sections),
        html_parts.sections(sections),
    ]
    return html_parts.document(table.title, "\n".join(filter(None, body)))


def _figure_caption(table: Table) -> str:
    drawn = "" if table.name == "adaptation" else "Ours are runs that are as their rows have them. "
    return f"{drawn}Also as {table.name}.pdf."


def html_grid(grid: Grid) -> str:
    """The grid; equal neighbours in its first column are one cell."""
    kinds = render.kinds(grid)
    head = [cell(html.escape(text), k, "th") for text, k in zip(grid.head, kinds, strict=True)]
    rows = []
    for first, group in itertools.groupby(grid.body, key=lambda cells: cells[0]):
        lines = list(group)
        for i, (_, *others) in enumerate(lines):
            made = [_cell(text, kind) for text, kind in zip(others, kinds[1:], strict=True)]
            begin = [] if i else [cell(html.escape(first), tag="th", rows=len(lines))]
            rows.append(row(begin + made, "published" if others[0] == "published" else ""))
    return html_parts.table(head, rows)


def _cell(text: str, kind: str) -> str:
    """In the colour of its mark or status; mathematics as a picture."""
    if render.is_maths(text):
        source = html_parts.source(plots.formula(text), "svg+xml")
        return cell(f'<img class="formula" src="{source}" alt="{html.escape(text)}">')
    colour = WORDS.get(text) or MARKS.get(text[-2:], "")
    return cell(html.escape(text), f"{kind} {colour}".strip())


def _note(text: str) -> str:
    return paragraph(text, "note")


def _scaled(asked: Asked) -> str:
    if asked.scale == 1:
        return ""
    text = f"SCALED: {asked.scale:g} of the paper's training. Not comparable with its numbers."
    return paragraph(text, "scaled")


def _progress(table: Table, asked: Asked) -> str:
    every = [text for _, _, text in sheet.statuses(table, asked)]
    done = every.count("done")
    bar = f'<progress max="{len(every)}" value="{done}"></progress>'
    return f"<p>{bar} {done} of {len(every)} runs done.</p>"


def _shown(table: Table, asked: Asked) -> Iterator[Shown]:
    for of_row in table.rows:
        for run in sorted(asked.of(of_row), key=lambda run: run.seed):
            name = ", ".join((of_row.label, *runs.differences(run, of_row, table)))
            yield Shown(name, runs.status(run, of_row, table), run)


def _statuses(table: Table, asked: Asked) -> str:
    """A row for each of the table's, a column for each seed."""
    found = {(of_row.label, seed): text for of_row, seed, text in sheet.statuses(table, asked)}
    seeds = list(dict.fromkeys(seed for _, seed in found))
    body = [[r.label, *(found.get((r.label, s), sheet.DASH) for s in seeds)] for r in table.rows]
    head = ["trained", *(f"seed {seed}" for seed in seeds)]
    return html_grid(Grid(table.name, "", head, body, []))


def _others(table: Table, asked: Asked, shown: Sequence[Shown]) -> str:
    exact = {run.workdir for of_row in table.rows for run in asked.exact(of_row, table)}
    count = sum(each.run.workdir not in exact for each in shown)
    said = f"Runs that are not as their rows have them, each named by how: {count}."
    return _note(said) if count else ""


def _none_yet(table: Table) -> str:
    command = f"python -m cat_jax.report --table={table.name} --list-runs"
    return f"<p>No run yet. <code>{command}</code> prints what to launch.</p>"


def _training(named: run_curves.Named) -> str:
    pictures = [
        picture(run_curves.losses(named), "Losses", CURVES),
        picture(run_curves.accuracies(named), "Accuracy on the validation split"),
    ]
    return "\n".join(filter(None, pictures)) or "<p>Nothing was logged yet.</p>"


def _masks(shown: Sequence[Shown], named: run_curves.Named) -> str:
    means = picture(run_curves.mask_means(named), "Mean of M", "Over all pixels, while training.")
    for each in shown:
        if views := plots.load_gallery(each.run.workdir / "masks.npz"):
            caption = "Class that the classifier says above each view; wrong ones are coloured."
            return means + picture(plots.gallery(views), f"Masks of {each.full_name}", caption)
    return means


def _radii(shown: Sequence[Shown], named: run_curves.Named) -> str:
    curves = [
        (each.name, check["curve"])
        for each in shown
        for check in tables.distinct(each.run.checks)
        if check["checkpoint"] == "best" and check.get("curve")
    ]
    epsilons = [each.run.config["test.epsilon"] for each in shown]
    caption = "Of the images that the checks are made on, under APGD on the cross-entropy."
    return picture(run_curves.radii(curves, named, epsilons), "Accuracy against epsilon", caption)


def _checks(shown: Sequence[Shown]) -> str:
    """A row for each failed check, and for each run without one."""
    rows = []
    for each in shown:
        found = tables.distinct(each.run.checks)
        failed = [check for check in found if not check["passed"]]
        passed = cell(f"all {len(found)} passed", "ok") if found else cell("not checked", "none")
        cells = [page.check_cells(check) for check in failed] or [[cell(""), passed, cell("")]]
        begin = [cell(html.escape(each.full_name), rows=len(cells))]
        rows += [row([*([] if i else begin), *others]) for i, others in enumerate(cells)]
    return html_parts.table(texts("run", "check", "", "found", tag="th"), rows) if rows else ""


def _made(each: Shown) -> str:
    run = each.run
    config = page.folded_config(json.loads((run.workdir / "config.json").read_text()))
    said = page.provenance(run.results, run.commands)
    return html_parts.details(f"{each.full_name}: {each.status} ({run.workdir})", said + config)
