"""The theory as one HTML file that needs no other: the sections, with their pictures below."""

import pathlib
from collections.abc import Sequence

from cat_jax.report.render import Picture, render
from cat_jax.theory import text
from cat_jax.theory.text import Section

# Each picture: the section that it belongs to, its title, and its caption.
PLACES = {
    "theory_counterexamples": (
        "Theorem 1",
        "Counterexamples",
        "Left: a classifier that is the oracle near the data, and another far away. Right, for "
        "Theorem 2: two classifiers that are right wherever f_oracle(X') = Y.",
    ),
    "theory_bounds": (
        "Theorem 2",
        "Bounds",
        "A point for each random classifier. Left, Theorem 1: none is above the line. Right, "
        "Theorem 2: crosses are above its bound as stated.",
    ),
    "theory_balls": (
        "Learned",
        "Boundaries and balls",
        "As the paper's first figure: the boundaries learned with and without the constraint.",
    ),
    "theory_boundaries": (
        "Learned",
        "Boundaries of every objective",
        "Every objective, on each of three problems; a line for each seed.",
    ),
}


def html(caption: str, sections: Sequence[Section], pictures: Sequence[pathlib.Path]) -> str:
    """The page.

    Args:
      caption: paragraph below the title.
      sections: text and tables, from `text.sections`.
      pictures: the files that `drawings.save` wrote.
    """
    return render(
        "theory/templates/theory.html",
        title=text.TITLE,
        caption=caption,
        sections=[(*section, _pictures(section.title, pictures)) for section in sections],
    )


def _pictures(title: str, files: Sequence[pathlib.Path]) -> list[Picture]:
    places = [(file, *PLACES[file.stem]) for file in files]
    return [
        Picture(file.read_bytes(), name, caption)
        for file, section, name, caption in places
        if title.startswith(section)
    ]
