"""Tables of runs, as Markdown: every number under the conditions that its line states."""

import json
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from cat_jax.experiment import labels
from cat_jax.report import grids
from cat_jax.report.grids import Grid
from cat_jax.storage import files, lines
from cat_jax.storage.lines import Line

Table = tuple[list[str], list[list[str]]]  # The head and the body of a grid.
DASH = "-"
WIDTH = 100  # Characters of a table that is not printed on a terminal.
CAPTION = (
    "Accuracy in percent (± half of the 95% Wilson interval); radii are L-infinity, unless a label "
    "names another norm."
)


class Reference(Protocol):
    """Published numbers to print beside those of a run."""

    @property
    def caption(self) -> str:
        """Whose numbers they are."""

    def text(self, conditions: Mapping[str, Any]) -> str:
        """The number to print beside a result with these conditions; "" if there is none."""


References = Callable[[pathlib.Path], Reference | None]  # The reference of a workdir.


def no_reference(workdir: pathlib.Path) -> None:
    """The references of a table of runs alone."""


class Source(NamedTuple):
    """What a table has numbers of: weights, or the published row of a run.

    Attributes:
      run: name of the workdir.
      name: for people.
      images: text of the images that it was evaluated on; "" for published numbers.
      cells: texts, by `condition_key`.
    """

    run: str
    name: str
    images: str
    cells: Mapping[str, str]


def runs_table(
    workdirs: Sequence[pathlib.Path],
    references: References = no_reference,
    width: int | None = None,
) -> str:
    """`runs_grid` as Markdown, below its caption; the width is by default the terminal's."""
    width = width or shutil.get_terminal_size((WIDTH, 24)).columns
    grid = runs_grid(workdirs, references, width)
    return f"{grid.caption}\n\n{grids.markdown_table(grid)}"


def runs_grid(
    workdirs: Sequence[pathlib.Path],
    references: References = no_reference,
    width: int = WIDTH,
) -> Grid:
    """Accuracies of each run and checkpoint, beside published numbers, in percent.

    An attack's cell has the accuracy and, behind it, half its 95% interval's width. A row has the
    numbers of one set of images. Where it would be wider than `width`, attacks are the rows.

    Args:
      workdirs: folders of runs.
      references: workdir -> published numbers to print beside its own.
      width: in characters.
    """
    sources, conditions, captions = [], dict[str, Mapping[str, Any]](), []
    for workdir in workdirs:
        results = [line for line in read(workdir, "results") if not lines.is_curve(line)]
        conditions |= {condition_key(line): line["conditions"] for line in results}
        has_own = any(line["attacked"]["file"] is None for line in results)
        reference = references(workdir) if has_own else None
        sources += _sources(workdir, results, reference)
        captions += _captions(workdir, reference)
    keys = sorted(conditions, key=lambda key: conditions[key]["attack"] != "natural")
    names = dict(zip(keys, labels.attacks([conditions[key] for key in keys]), strict=True))
    caption = "\n".join([*captions, CAPTION])
    grid = Grid("runs", caption, *_by_source(sources, names))
    if len(grids.markdown_table(grid).partition("\n")[0]) > width:
        return Grid("runs", caption, *_by_attack(sources, names))
    return grid


def read(workdir: pathlib.Path, name: str) -> list[Line]:
    """The newest lines of results.jsonl or checks.jsonl that state their conditions."""
    records = files.read_json_lines(workdir / f"{name}.jsonl")
    return lines.newest(lines.with_conditions(records))


def remarks(workdir: pathlib.Path) -> list[str]:
    """A sentence for each file with lines that an earlier version wrote, without conditions."""
    return [
        remark
        for name in ("results.jsonl", "checks.jsonl")
        if (remark := lines.without_conditions(name, files.read_json_lines(workdir / name)))
    ]


def condition_key(line: Line) -> str:
    """Equal for lines whose numbers can be compared, the images aside."""
    return json.dumps(labels.comparable(line["conditions"]), sort_keys=True, allow_nan=False)


def _sources(
    workdir: pathlib.Path, results: Sequence[Line], reference: Reference | None
) -> list[Source]:
    """The checkpoints and files of a workdir, by the images, and the published numbers."""
    if not results:
        return [Source(workdir.name, f"{workdir.name}: no results yet", "", {})]
    groups: dict[tuple[str, str], dict[str, str]] = {}
    for text, line in zip(labels.all_weights(results), results, strict=True):
        name = f"{workdir.name}, {text}"
        group = groups.setdefault((name, labels.images(line["conditions"])), {})
        group[condition_key(line)] = _cell(line["outcome"])
    sources = [Source(workdir.name, *group, cells) for group, cells in groups.items()]
    if reference is None:
        return sources
    own = [line for line in results if line["attacked"]["file"] is None]
    numbers = {condition_key(line): reference.text(line["conditions"]) for line in own}
    texts = {key: text for key, text in numbers.items() if text}
    published = Source(workdir.name, f"{workdir.name}, published", "", texts)
    return [*sources, published] if texts else sources


def _by_source(sources: Sequence[Source], names: Mapping[str, str]) -> Table:
    """A row for each source, a column for each attack."""
    head = ["", "images", *names.values()]
    body = [
        [name, images or DASH, *(cells.get(key, DASH) for key in names)]
        for _, name, images, cells in sources
    ]
    return head, body


def _by_attack(sources: Sequence[Source], names: Mapping[str, str]) -> Table:
    """A row for each attack and set of images; published numbers are in all rows of their run."""
    columns = list(dict.fromkeys(source.name for source in sources))
    every = list(dict.fromkeys(source.images for source in sources if source.images))
    body = []
    for key, label in names.items():
        for images in every:
            of_key = [s for s in sources if key in s.cells]
            runs = {s.run for s in of_key if s.images == images}
            of_runs = [s for s in of_key if s.run in runs and s.images in ("", images)]
            texts = {s.name: s.cells[key] for s in of_runs}
            if texts:
                body.append([label, images, *(texts.get(name, DASH) for name in columns)])
    return ["", "images", *columns], body


def costs_table(workdir: pathlib.Path) -> str:
    """`costs_grid` as Markdown; "" without rows."""
    grid = costs_grid(workdir)
    return grids.markdown_table(grid) if grid.body else ""


def costs_grid(workdir: pathlib.Path) -> Grid:
    """One row for each checkpoint and attack: what it cost."""
    head = ["", "images", "still right", "attacked", "forward passes each", "seconds"]
    rows = []
    for name, line in named(distinct(read(workdir, "results"))):
        number, outcome = line["conditions"]["num_examples"], line["outcome"]
        counts = [labels.images(line["conditions"]), str(round(outcome["accuracy"] * number))]
        cost = [f"{outcome['mean_queries']:.0f}", f"{outcome['seconds']:.1f}"]
        rows.append([name, *counts, str(outcome["num_attacked"]), *cost])
    return Grid("costs", "", head, rows)


def named(results: Sequence[Line]) -> list[tuple[str, Line]]:
    """Lines of results.jsonl with labels such as "best pgd20 at 0.15", curves aside."""
    shown = [line for line in results if not lines.is_curve(line)]
    attacks = labels.attacks([line["conditions"] for line in shown])
    weights = labels.all_weights(shown)
    names = (f"{of} {attack}" for of, attack in zip(weights, attacks, strict=True))
    return list(zip(names, shown, strict=True))


def checks_list(workdir: pathlib.Path) -> str:
    """One line for each checkpoint and check, in the order of the checks; failures say FAILED."""
    texts = []
    for check in distinct(read(workdir, "checks")):
        verdict = "ok" if check["outcome"]["passed"] else "FAILED"
        texts.append(f"{labels.check(check)}: {verdict}: {check['outcome']['text']}")
    return "\n".join(texts)


def distinct(records: Sequence[Line]) -> list[Line]:
    """The lines of each checkpoint, but of last/ only if its weights are not those of best/."""
    best = {
        _attacked(line, "weights") for line in records if _attacked(line, "checkpoint") == "best"
    }
    return [
        line
        for line in records
        if _attacked(line, "checkpoint") != "last" or _attacked(line, "weights") not in best
    ]


def _attacked(line: Line, field: str) -> Any:
    return line["attacked"][field]


def _cell(outcome: Mapping[str, Any]) -> str:
    low, high = outcome["interval"]
    return f"{100 * outcome['accuracy']:.1f} (±{50 * (high - low):.1f})"


def describe(attacked: Mapping[str, Any]) -> str:
    """One line on what was attacked: how it was trained, if it is a run's own."""
    if attacked["file"] is not None:
        return f"{labels.weights(attacked)} on {attacked['dataset']}"
    return (
        f"{attacked['dataset']}, {attacked['variant'] or attacked['method']}, seed "
        f"{attacked['seed']}, conventions {attacked['conventions']}, best/ chosen on: "
        f"{attacked['selection']}"
    )


def _captions(workdir: pathlib.Path, reference: Reference | None) -> list[str]:
    every = dict.fromkeys(describe(line["attacked"]) for line in read(workdir, "results"))
    texts = [*every, *remarks(workdir), *([reference.caption] if reference else [])]
    return [f"{workdir.name}: {text}" for text in texts]
