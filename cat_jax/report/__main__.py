"""Prints the results of runs beside each other: `python -m cat_jax.report runs/a runs/b`."""

import argparse
import pathlib
import sys

from cat_jax.report import tables


def main() -> int:
    """Reads the command line and prints; 2 if a folder is not that of a run."""
    parser = argparse.ArgumentParser(prog="python -m cat_jax.report", description=__doc__)
    parser.add_argument("workdirs", nargs="+", type=pathlib.Path, help="folders of runs")
    workdirs = parser.parse_args().workdirs
    for workdir in workdirs:
        if not (workdir / "config.json").exists():
            print(
                f"error: {workdir} holds no config.json; expected the --workdir of a run.",
                file=sys.stderr,
            )
            return 2
    print(tables.runs_table(workdirs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
