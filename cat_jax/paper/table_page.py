"""Writes one table of the paper as one HTML file: its numbers, its figure, and its runs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cat_jax.experiment import labels
from cat_jax.paper import cells, progress, sheet
from cat_jax.paper.matches import Match
from cat_jax.paper.measured import Run
from cat_jax.paper.query import Query
from cat_jax.paper.rows import Table
from cat_jax.report import epsilon_curves, mask_gallery, plots, run_curves, tables
from cat_jax.report.grids import Grid
from cat_jax.report.mask_gallery import Gallery
from cat_jax.report.render import Picture, is_maths, render
from cat_jax.storage.run_folder import RunFolder

COLOURS = {sheet.NO_RUN: "none", "done": "better", "missing": "none"}
MARKS = {cells.BETTER: "better", cells.WORSE: "worse"}

CURVES = "One line for each run, in the colour of its row. Long runs show the means of epochs."


class Shown(NamedTuple):
    """A run on the page.

    Attributes:
      match: run and row.
      status: "done", or the progress of the run.
      shared: differences from their rows that all runs on the page share; names leave them out.
    """

    match: Match
    status: str
    shared: frozenset[str] = frozenset()

    @property
    def run(self) -> Run:
        """The run's files."""
        return self.match.run

    @property
    def name(self) -> str:
        """The row, and how the run differs from it and from the other runs."""
        own = [text for text in self.match.differences if text not in self.shared]
        return ", ".join((self.match.row.label, *own))

    @property
    def full_name(self) -> str:
        """The name with the seed."""
        return f"{self.name}, seed {self.run.seed}"

    @property
    def checks(self) -> list[Mapping[str, Any]]:
        """The lines of checks.jsonl, without those of last/ if it equals best/."""
        return tables.distinct(self.run.checks)

    @property
    def failed_checks(self) -> list[Mapping[str, Any]]:
        """The checks that failed."""
        return [check for check in self.checks if not check["outcome"]["passed"]]

    @property
    def config_json(self) -> str:
        """The text of config.json."""
        return RunFolder(self.run.workdir).config_file.read_text()


def text_page(grid: Grid) -> str:
    """Returns the HTML of a table that has no runs."""
    return render("paper/templates/text.html", title=grid.caption, grid=grid, formula=_formula)


def table_page(table: Table, grid: Grid, figure: bytes | None, query: Query) -> str:
    """Returns the HTML of a table of numbers, which names what is missing.

    Args:
      table: table of the paper.
      grid: table as text, from `sheet.grid`.
      figure: figure of the table, as PNG.
      query: query of the command line.
    """
    shown = list(_shown(table, query))
    named = [(item.name, item.run.metrics) for item in shown]
    statuses = progress.statuses(table, query)
    exact = {match.run.workdir for row in table.rows for match in query.exact(row)}
    *notes, about_runs = grid.notes
    return render(
        "paper/templates/table.html",
        title=table.title,
        caption=grid.caption.removeprefix(f"{table.title}. "),
        scale=query.scale,
        grid=grid,
        notes=notes,
        about_runs=about_runs,
        colour=_colour,
        num_runs=len(statuses),
        num_done=sum(text == "done" for _, _, text in statuses),
        figure=Picture(figure, "Figure", _figure_caption(table)),
        shared=", ".join(sorted(_shared([item.match for item in shown]))),
        statuses=_status_grid(table, statuses),
        num_others=sum(item.run.workdir not in exact for item in shown),
        shown=shown,
        check_name=labels.check,
        curves=[
            Picture(run_curves.losses(named), "Losses", CURVES),
            Picture(run_curves.accuracies(named), "Accuracy on the validation split"),
        ],
        masks=Picture(
            run_curves.mask_means(named), "Mean of the mask M", "Over all pixels, during training."
        ),
        galleries=_galleries(shown),
        radii=_radii(shown, named),
    )


def _figure_caption(table: Table) -> str:
    if table.name == "adaptation":
        drawn = "An illustration in the plane, drawn without a run. "
    elif table.columns[0].startswith("mask_"):
        drawn = "Five test images in four views; the third row shows the mask. "
    else:
        drawn = "Our numbers come from runs that agree with their rows, up to the scale. "
    return f"{drawn}{table.name}.pdf has the same figure."


def _colour(text: str) -> str:
    """Returns the class of style.css for a cell with a mark or a status."""
    return COLOURS.get(text) or MARKS.get(text[-2:], "")


def _formula(text: str) -> bytes | None:
    return plots.formula(text) if is_maths(text) else None


def _shown(table: Table, query: Query) -> Iterator[Shown]:
    """The runs of each row, ordered by seed."""
    matches = [m for r in table.rows for m in sorted(query.of(r), key=lambda m: m.run.seed)]
    shared = _shared(matches)
    for match in matches:
        yield Shown(match, progress.status(match, table), shared)


def _shared(matches: Sequence[Match]) -> frozenset[str]:
    """The differences from their rows that several runs have in common."""
    if len(matches) < 2:
        return frozenset()
    return frozenset.intersection(*(frozenset(match.differences) for match in matches))


def _status_grid(table: Table, statuses: Sequence[progress.Status]) -> Grid:
    """A grid with a row for each row of the table and a column for each seed."""
    texts = {(row.label, seed): text for row, seed, text in statuses}
    seeds = list(dict.fromkeys(seed for _, seed in texts))
    body = [[r.label, *(texts.get((r.label, s), sheet.DASH) for s in seeds)] for r in table.rows]
    return Grid(table.name, "", ["trained", *(f"seed {seed}" for seed in seeds)], body)


def _galleries(shown: Sequence[Shown]) -> list[Gallery]:
    """For each name the masks of the first run that has images."""
    galleries: dict[str, Gallery] = {}
    for item in shown:
        file, title = RunFolder(item.run.workdir).masks_file, f"Masks of {item.full_name}"
        if item.name not in galleries and (gallery := mask_gallery.gallery(file, title)):
            galleries[item.name] = gallery
    return list(galleries.values())


def _radii(shown: Sequence[Shown], named: run_curves.Named) -> Picture:
    named_curves = [
        (item.name, curve)
        for item in shown
        for curve in epsilon_curves.curves(item.run.points)
        if "best" in curve.name.split(" = ")
    ]
    curves = [(name, curve.points) for name, curve in named_curves]
    compared = [f"{name}, {curve.comparison}" for name, curve in named_curves if curve.comparison]
    epsilons = epsilon_curves.tested(
        (line for item in shown for line in item.run.results), [curve for _, curve in named_curves]
    )
    caption = (
        "Under FMN. Bands are 95% Wilson intervals; dashed lines mark the radii of the results "
        "above. APGD checks each curve at some radii. "
    ) + " ".join(compared)
    drawn = run_curves.radii(curves, named, epsilons)
    return Picture(drawn, "Accuracy against epsilon", caption)
