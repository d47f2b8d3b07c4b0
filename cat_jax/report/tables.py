"""Tables of runs in Markdown; every number stands under the conditions of its line."""

import json
import pathlib
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from cat_jax.experiment import labels
from cat_jax.report import grids
from cat_jax.report.grids import Grid
from cat_jax.runtime import terminal
from cat_jax.storage import lines
from cat_jax.storage.lines import Line
from cat_jax.storage.run_folder import RunFolder

Table = tuple[list[str], list[list[str]]]  # The head and the body of a grid.
DASH = "-"
SELECTIONS = {"validation": "validation images", "test": "test images", "none": "the last step"}
CAPTION = (
    "Accuracy in percent (± half of the 95% Wilson interval); L-infinity radii, unless a label "
    "names another norm."
)


class Reference(Protocol):
    """Published numbers to print next to those of a run."""

    @property
    def caption(self) -> str:
        """The source of the numbers."""

    def text(self, conditions: Mapping[str, Any]) -> str:
        """The published number for these conditions; "" if there is none."""


References = Callable[[pathlib.Path], Reference | None]  # The reference of a workdir.


def no_reference(workdir: pathlib.Path) -> None:
    """Returns no published numbers."""


class Source(NamedTuple):
    """Numbers of one set of weights, or the published numbers of a run.

    Attributes:
      run: name of the workdir.
      name: such as "best" or "published".
      images: the test images, as text; "" for published numbers.
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
    """`runs_grid` as Markdown below its caption, or a table for each run if it is too wide.

    Args:
      workdirs, references: as for `runs_grid`.
      width: in characters; default: width of the terminal.
    """
    width = width or terminal.width()
    grid = runs_grid(workdirs, references, width)
    text = f"{_wrapped(grid.caption, width)}\n\n{grids.markdown_table(grid)}"
    if len(workdirs) == 1 or _width(grid) <= width:
        return text
    return "\n\n".join(runs_table([workdir], references, width) for workdir in workdirs)


def runs_grid(
    workdirs: Sequence[pathlib.Path],
    references: References = no_reference,
    width: int = terminal.WIDTH,
) -> Grid:
    """Accuracies of each run and checkpoint, beside published numbers, in percent.

    A cell has the accuracy and half the width of its 95% interval. A row has the numbers of one
    set of images. Attacks are the columns, or the rows if columns do not fit.

    Args:
      workdirs: folders of runs.
      references: workdir -> published numbers to print beside its own.
      width: in characters.
    """
    sources, conditions, captions = [], dict[str, Mapping[str, Any]](), []
    for workdir in workdirs:
        results = [line for line in read(workdir, "results") if lines.is_in_tables(line)]
        conditions |= {condition_key(line): line["conditions"] for line in results}
        has_own = any(line["attacked"]["file"] is None for line in results)
        reference = references(workdir) if has_own else None
        sources += _sources(workdir, results, reference)
        captions += _captions(workdir, reference)
    if len(workdirs) > 1:
        sources = [source._replace(name=f"{source.run}, {source.name}") for source in sources]
    keys = sorted(conditions, key=lambda key: conditions[key]["attack"] != "natural")
    names = dict(zip(keys, labels.attacks([conditions[key] for key in keys]), strict=True))
    caption = "\n".join([*captions, CAPTION])
    grid = Grid("runs", caption, *_by_source(sources, names))
    if _width(grid) > width:
        return Grid("runs", caption, *_by_attack(sources, names))
    return grid


def _width(grid: Grid) -> int:
    return len(grids.markdown_table(grid).partition("\n")[0])


def _wrapped(text: str, width: int) -> str:
    return "\n".join(textwrap.fill(line, width) for line in text.split("\n"))


def read(workdir: pathlib.Path, name: str) -> list[Line]:
    """The newest lines of results.jsonl or checks.jsonl."""
    return lines.newest(RunFolder(workdir).read_lines(name))


def condition_key(line: Line) -> str:
    """A text that is equal for lines with comparable numbers, whatever their images."""
    return json.dumps(labels.comparable(line["conditions"]), sort_keys=True, allow_nan=False)


def _sources(
    workdir: pathlib.Path, results: Sequence[Line], reference: Reference | None
) -> list[Source]:
    """The numbers of each set of weights of a workdir and its images, and the published ones."""
    if not results:
        return [Source(workdir.name, "no results yet", "", {})]
    groups: dict[tuple[str, str], dict[str, str]] = {}
    for text, line in zip(labels.all_weights(results), results, strict=True):
        group = groups.setdefault((text, labels.images(line["conditions"])), {})
        group[condition_key(line)] = cell(line["outcome"])
    sources = [Source(workdir.name, *group, cells) for group, cells in groups.items()]
    if reference is None:
        return sources
    own = [line for line in results if line["attacked"]["file"] is None]
    numbers = {condition_key(line): reference.text(line["conditions"]) for line in own}
    texts = {key: text for key, text in numbers.items() if text}
    published = Source(workdir.name, "published", "", texts)
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
    """A row for each attack and set of images, with the published numbers of the run in each."""
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


def distinct(records: Sequence[Line]) -> list[Line]:
    """The lines without those of last/ if it has the same weights as best/."""
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


def cell(outcome: Mapping[str, Any]) -> str:
    """ "80.3 (±4.1)": accuracy and half of its 95% interval, in percent."""
    low, high = outcome["interval"]
    return f"{100 * outcome['accuracy']:.1f} (±{50 * (high - low):.1f})"


def describe(attacked: Mapping[str, Any]) -> str:
    """One line on the attacked weights, and on how a run of cat_jax trained them."""
    if attacked["file"] is not None:
        return f"{labels.weights(attacked)} on {attacked['dataset']}"
    return (
        f"{attacked['variant'] or attacked['method']} on {attacked['dataset']}, seed "
        f"{attacked['seed']}, {attacked['conventions']} conventions, best/ chosen on "
        f"{SELECTIONS.get(attacked['selection'], attacked['selection'])}"
    )


def _captions(workdir: pathlib.Path, reference: Reference | None) -> list[str]:
    every = dict.fromkeys(describe(line["attacked"]) for line in read(workdir, "results"))
    texts = [*every, *([reference.caption] if reference else [])]
    return [f"{workdir.name}: {text}" for text in texts]
