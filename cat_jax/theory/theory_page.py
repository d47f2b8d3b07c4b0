"""The theory as one HTML file that needs no other: the summary, with its pictures in place."""

import pathlib
from collections.abc import Sequence

from cat_jax.report import html_parts

# Of each picture: below which section, and what it shows.
PLACES = {
    "theory_counterexamples": (
        "Theorem 1",
        "Left: a classifier that is the oracle near the data, and another far away. Right, for "
        "Theorem 2: two classifiers that are right wherever f_oracle(X') = Y.",
    ),
    "theory_bounds": (
        "Theorem 2",
        "A point for each random classifier. Left, Theorem 1: none is above the line. Right, "
        "Theorem 2: crosses are above its bound as stated.",
    ),
    "theory_balls": (
        "Learned",
        "As the paper's first figure: the boundaries learned with and without the constraint.",
    ),
    "theory_boundaries": (
        "Learned",
        "Every objective, on each of three problems; a line for each seed.",
    ),
}


def html(summary: str, pictures: Sequence[pathlib.Path]) -> str:
    """The page.

    Args:
      summary: as `text.page` has it, in Markdown.
      pictures: the files that `figures.save` wrote.
    """
    head, *sections = summary.split("\n## ")
    title, _, caption = head.removeprefix("# ").partition("\n\n")
    body = [html_parts.markdown(caption)]
    for section in sections:
        body.append(html_parts.markdown(f"## {section}"))
        for path in pictures:
            place, said = PLACES[path.stem]
            if section.startswith(place):
                name = path.stem.replace("_", " ").capitalize()
                body.append(html_parts.picture(path.read_bytes(), name, said))
    return html_parts.document(title, "\n".join(body))
