"""One table of the paper as one HTML file that needs no other: numbers, figure, and their runs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cat_jax.experiment import labels
from cat_jax.paper import cells, progress, sheet
from cat_jax.paper.matches import Match
from cat_jax.paper.measured import Run
from cat_jax.paper.query import Query
from cat_jax.paper.rows import Table
from cat_jax.report import epsilon_curves, plots, run_curves, tables
from cat_jax.report.grids import Grid
from cat_jax.report.render import Picture, is_maths, render

COLOURS = {sheet.NO_RUN: "none", "done": "better", "missing": "none"}
MARKS = {cells.BETTER: "better", cells.WORSE: "worse"}

CURVES = "A line for each run, in the colour of its row; of long ones the means of epochs."


class Shown(NamedTuple):
    """A run on the page.

    Attributes:
      match: the run and its row.
      status: "done", or what is missing.
    """

    match: Match
    status: str

    @property
    def run(self) -> Run:
        """The run's files."""
        return self.match.run

    @property
    def name(self) -> str:
        """The row, and how the run differs from it."""
        return ", ".join((self.match.row.label, *self.match.differences))

    @property
    def full_name(self) -> str:
        """The name with the seed."""
        return f"{self.name}, seed {self.run.seed}"

    @property
    def checks(self) -> list[Mapping[str, Any]]:
        """The lines of checks.jsonl, without those of last/ if it is best/."""
        return tables.distinct(self.run.checks)

    @property
    def failed_checks(self) -> list[Mapping[str, Any]]:
        """The checks that failed."""
        return [check for check in self.checks if not check["outcome"]["passed"]]

    @property
    def config_json(self) -> str:
        """The text of config.json."""
        return (self.run.workdir / "config.json").read_text()


def text_page(grid: Grid) -> str:
    """The HTML of a table that has no runs."""
    return render("paper/templates/text.html", title=grid.caption, grid=grid, formula=_formula)


def table_page(table: Table, grid: Grid, figure: bytes | None, query: Query) -> str:
    """The HTML of a table of numbers, which names what is missing.

    Args:
      table: one of the paper's.
      grid: the table filled by `sheet.grid`.
      figure: the table's figure, as PNG.
      query: the query of the command line.
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
        statuses=_status_grid(table, statuses),
        num_others=sum(item.run.workdir not in exact for item in shown),
        shown=shown,
        check_name=labels.check,
        curves=[
            Picture(run_curves.losses(named), "Losses", CURVES),
            Picture(run_curves.accuracies(named), "Accuracy on the validation split"),
        ],
        masks=_masks(shown, named),
        radii=_radii(shown, named),
    )


def _figure_caption(table: Table) -> str:
    drawn = "" if table.name == "adaptation" else "Ours are runs that agree with their rows. "
    return f"{drawn}Also as {table.name}.pdf."


def _colour(text: str) -> str:
    """The class of style.css for a cell with a mark or a status."""
    return COLOURS.get(text) or MARKS.get(text[-2:], "")


def _formula(text: str) -> bytes | None:
    return plots.formula(text) if is_maths(text) else None


def _shown(table: Table, query: Query) -> Iterator[Shown]:
    for row in table.rows:
        for match in sorted(query.of(row), key=lambda match: match.run.seed):
            yield Shown(match, progress.status(match, table))


def _status_grid(table: Table, statuses: Sequence[progress.Status]) -> Grid:
    """A row for each of the table's, a column for each seed."""
    texts = {(row.label, seed): text for row, seed, text in statuses}
    seeds = list(dict.fromkeys(seed for _, seed in texts))
    body = [[r.label, *(texts.get((r.label, s), sheet.DASH) for s in seeds)] for r in table.rows]
    return Grid(table.name, "", ["trained", *(f"seed {seed}" for seed in seeds)], body)


def _masks(shown: Sequence[Shown], named: run_curves.Named) -> list[Picture]:
    """The means of all runs, and the masks of the first run that has images."""
    means = run_curves.mask_means(named)
    pictures = [Picture(means, "Mean of M", "Over all pixels, while training.")]
    for item in shown:
        if views := plots.load_gallery(item.run.workdir / "masks.npz"):
            caption = "The classifier's class is above each view; wrong classes are coloured."
            gallery = plots.gallery(views)
            return [*pictures, Picture(gallery, f"Masks of {item.full_name}", caption)]
    return pictures


def _radii(shown: Sequence[Shown], named: run_curves.Named) -> Picture:
    curves = [
        (item.name, [point[:2] for point in curve.points])
        for item in shown
        for curve in epsilon_curves.curves(item.run.points)
        if curve.name == "best"
    ]
    epsilons = dict.fromkeys(
        line["conditions"].get("epsilon", 0.0) for item in shown for line in item.run.results
    )
    caption = "Under PGD-20, whose step size keeps its ratio to epsilon."
    drawn = run_curves.radii(curves, named, filter(None, epsilons))
    return Picture(drawn, "Accuracy against epsilon", caption)
