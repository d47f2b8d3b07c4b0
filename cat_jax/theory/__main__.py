"""Computes the theorems of the paper for classifiers in the plane.

    python -m cat_jax.theory
    python -m cat_jax.theory --out=docs/results/theory

Both commands print the results; the second one also writes a page with numbers
and pictures. It takes one or two minutes on two cores.
"""

import argparse
import pathlib
import sys

from cat_jax.errors import UsageError
from cat_jax.runtime import backend
from cat_jax.storage import files, paths
from cat_jax.theory import drawings, summary, text, theory_page
from cat_jax.theory.summary import Budget


def main() -> int:
    """Runs the command line; returns 2 if the folder of --out cannot be written."""
    parser = argparse.ArgumentParser(
        prog="python -m cat_jax.theory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", metavar="FOLDER", help="folder for the page and the pictures")
    options = parser.parse_args()
    try:
        out = paths.local_path(options.out, "--out") if options.out else None
        if out:
            files.check_writable(out, "--out")
        backend.check_devices()
        print(write(out), end="")
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def write(folder: pathlib.Path | None, budget: Budget = summary.FULL) -> str:
    """Writes theory.md, .html, .csv and the pictures into `folder` unless it is None.

    Returns:
      The page, as Markdown.
    """
    theory = summary.compute(budget)
    page = text.page(theory)
    if folder is None:
        return page
    files.write_text(folder / "theory.md", page)
    files.write_text(folder / "theory.csv", text.table(theory))
    pictures = drawings.save(theory, folder)
    html = theory_page.html(text.caption(budget), text.sections(theory), pictures)
    files.write_text(folder / "theory.html", html)
    return page


if __name__ == "__main__":
    sys.exit(main())
