"""Writes the theory as one HTML file: sections of text and tables with their pictures."""

import pathlib
from collections.abc import Sequence

from cat_jax.report.render import Picture, render
from cat_jax.theory import text
from cat_jax.theory.text import Section

# Section, title and caption of each picture.
PICTURES = {
    "theory_counterexamples": (
        "Theorem 1",
        "Counterexamples to both theorems as stated",
        "Left, Theorem 1: a classifier that equals the oracle near the data and differs far away. "
        "Right, Theorem 2: two classifiers that are correct wherever f_oracle(X') = Y.",
    ),
    "theory_bounds": (
        "Theorem 2",
        "Both theorems on random classifiers, one point each",
        "Left, Theorem 1: no classifier lies above the diagonal. Right, Theorem 2: the crosses "
        "exceed the bound as stated.",
    ),
    "theory_balls": (
        "Learned",
        "Boundaries learned with and without the constraint",
        "This is the paper's first figure, computed. Without the constraint the boundary leaves "
        "the oracle's where balls are crossed.",
    ),
    "theory_boundaries": (
        "Learned",
        "Boundaries learned by every objective",
        "Each column is one problem, and each line one seed.",
    ),
}


def html(caption: str, sections: Sequence[Section], pictures: Sequence[pathlib.Path]) -> str:
    """Returns the page.

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
    places = [(file, *PICTURES[file.stem]) for file in files]
    return [
        Picture(file.read_bytes(), name, caption)
        for file, section, name, caption in places
        if title.startswith(section)
    ]
