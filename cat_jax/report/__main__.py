"""Compares runs, or prints a table of the paper with their numbers.

    python -m cat_jax.report runs/a runs/b
    python -m cat_jax.report --details runs/a
    python -m cat_jax.report --table=mnist --out=tables runs
    python -m cat_jax.report --table=mnist --list-runs --scale=0.05

The first command prints accuracies side by side, the second every check and
the cost of each attack. The third fills a table of the paper from all runs
below a folder; the last one prints the commands that train these runs, here
with 5% of the epochs and test images. --config.FIELD=VALUE is added to each of
these commands.
"""

import argparse
import os
import pathlib
import sys

from cat_jax.errors import Damaged, UsageError
from cat_jax.paper import output, progress, references, runs
from cat_jax.paper.catalogue import TABLES
from cat_jax.paper.query import Query
from cat_jax.report import corruption_table, details, grids, seed_means, tables, transfer_matrix
from cat_jax.storage import files, paths, run_folder

NAMES = (*TABLES, "losses")


def main() -> int:
    """Runs the command; returns 2 if the user has to change something."""
    parser = _parser()
    # Because argparse would take an override with a space in its value for a folder.
    overrides = [word for word in sys.argv[1:] if word.startswith("--config.")]
    rest = [word for word in sys.argv[1:] if word not in overrides]
    arguments, unknown = parser.parse_known_args(rest)
    overrides += unknown
    try:
        if arguments.table:
            _print_tables(arguments, overrides)
        else:
            _print_runs(arguments, overrides)
    except BrokenPipeError:  # The reader, such as head, stopped reading.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (UsageError, Damaged) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cat_jax.report",
        usage="python -m cat_jax.report [flags] [workdirs]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("workdirs", nargs="*", help="folders of runs; with --table, folders above them")
    add(
        "--table",
        metavar="NAME",
        help=f"{', '.join(NAMES)}; several separated by commas, or all",
    )
    add(
        "--runs",
        default="runs",
        metavar="FOLDER",
        help="folder above the runs; default: runs",
    )
    add(
        "--out",
        metavar="FOLDER",
        help="also write HTML, Markdown, LaTeX, CSV and figures there",
    )
    add("--seeds", metavar="0,1,2", help="seeds; default: those of each row")
    add("--scale", default="1", metavar="S", help="share of epochs and test images, in (0, 1]")
    add("--list-runs", action="store_true", help="print the commands to run")
    add("--details", action="store_true", help="print every check and the cost of each attack")
    add("--todo", action="store_true", help="with --list-runs: only for runs that are not done")
    add("--status", action="store_true", help="print how far each run is")
    return parser


def _print_runs(arguments: argparse.Namespace, overrides: list[str]) -> None:
    folders = [run_folder.named(text, "the workdir") for text in arguments.workdirs]
    workdirs = [folder.path for folder in folders]
    if overrides or not workdirs:
        given = f"{overrides[0]} needs --table" if overrides else "No run was named"
        raise UsageError(f"{given}; expected workdirs, or --table=NAME (see --help).")
    for folder in folders:
        if not folder.has_config():
            raise UsageError(f"{folder} holds no config.json; expected the --workdir of a run.")
    if arguments.details:
        print("\n\n".join(f"{workdir}\n{details.details(workdir)}" for workdir in workdirs))
    else:
        texts = [tables.runs_table(workdirs, references.of_run)]
        texts.append(grids.captioned(seed_means.seed_grids(workdirs)))
        texts.append(grids.captioned(transfer_matrix.transfer_grids(workdirs)))
        texts.append(grids.captioned(corruption_table.corruption_grids(workdirs)))
        print("\n\n".join(filter(None, texts)))


def _print_tables(arguments: argparse.Namespace, overrides: list[str]) -> None:
    names = _table_names(arguments.table)
    for argument in overrides:
        if not (arguments.list_runs and argument.startswith("--config.") and "=" in argument):
            raise UsageError(
                f"{argument} is not a flag; expected --config.FIELD=VALUE with --list-runs."
            )
    scale, seeds = read_scale(arguments.scale), read_seeds(arguments.seeds)
    folders = [
        paths.local_path(text, "the folder of runs")
        for text in arguments.workdirs or [arguments.runs]
    ]
    if arguments.list_runs and len(folders) > 1:
        raise UsageError(
            f"--list-runs writes to one folder, but {len(folders)} are named; name one."
        )
    with_runs = [TABLES[name] for name in names if name in TABLES]
    if with_runs and not arguments.list_runs:  # Its commands create the folder.
        for folder in folders:
            _check_folder(folder, arguments.table)
    out = paths.local_path(arguments.out, "--out") if arguments.out else None
    if out and not (arguments.list_runs or arguments.status):
        files.check_writable(out, "--out")
    by_workdir = {run.workdir: run for folder in folders for run in runs.find(folder)}
    query = Query(list(by_workdir.values()), ", ".join(map(str, folders)), seeds, scale)
    if arguments.list_runs:
        print("\n".join(progress.launched(with_runs, query, overrides, arguments.todo)))
    elif arguments.status:
        print(output.text(progress.status_grid(with_runs, query)))
    else:
        for name in names:
            output.show(name, query, out)


def _table_names(text: str) -> list[str]:
    names = list(NAMES) if text == "all" else text.split(",")
    for name in names:
        if name not in NAMES:
            raise UsageError(f"Table {name!r} is unknown; available: {', '.join(NAMES)}, or all.")
    return list(dict.fromkeys(names))


def _check_folder(folder: pathlib.Path, table: str) -> None:
    if not folder.is_dir():
        raise UsageError(
            f"The folder {folder} does not exist; expected the folder of the runs. "
            f"python -m cat_jax.report --table={table} --list-runs prints commands that fill it."
        )


def read_scale(text: str) -> float:
    """Returns the number in (0, 1]; raises UsageError for any other text."""
    try:
        scale = float(text)
    except ValueError:
        scale = 0.0
    if not 0 < scale <= 1:
        raise UsageError(f"--scale is {text}; expected above 0 and up to 1, such as 0.05.")
    return scale


def read_seeds(text: str | None) -> tuple[int, ...] | None:
    """Returns the seeds in their order; raises UsageError unless they are integers from 0."""
    if text is None:
        return None
    seeds = text.split(",")
    if not all(seed.isdigit() for seed in seeds):
        raise UsageError(f"--seeds is {text}; expected integers from 0, such as 0,1,2.")
    return tuple(dict.fromkeys(map(int, seeds)))


if __name__ == "__main__":
    sys.exit(main())
