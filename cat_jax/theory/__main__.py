"""Computes the theory and prints it, or writes a page of it too: --out=FOLDER."""

import argparse
import pathlib
import sys

from cat_jax.storage import files
from cat_jax.theory import drawings, summary, text
from cat_jax.theory.summary import Budget
from cat_jax.theory.theory_page import html


def main() -> int:
    """Reads the command line; 2 if there is no such folder and none can be made."""
    parser = argparse.ArgumentParser(prog="python -m cat_jax.theory", description=__doc__)
    parser.add_argument(
        "--out", type=pathlib.Path, help="folder to write pictures and numbers into"
    )
    out = parser.parse_args().out
    if out and out.exists() and not out.is_dir():
        parser.error(f"--out is {out}, a file; expected a folder, which may be a new one.")
    print(write(out), end="")
    return 0


def write(folder: pathlib.Path | None, budget: Budget = summary.FULL) -> str:
    """Writes theory.md, .html, .csv and the pictures into `folder`, if any; returns the page."""
    theory = summary.compute(budget)
    page = text.page(theory)
    if folder is None:
        return page
    files.write_text(folder / "theory.md", page)
    files.write_text(folder / "theory.csv", text.table(theory))
    pictures = drawings.save(theory, folder)
    files.write_text(folder / "theory.html", html(page, pictures))
    return page


if __name__ == "__main__":
    sys.exit(main())
