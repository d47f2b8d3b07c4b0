"""Times of several libraries at the same work, in turn: a noisy machine is noisy for all."""

import argparse
import importlib
import os
import pathlib
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from importlib import metadata
from types import ModuleType
from typing import Any

from cat_jax.errors import UsageError
from cat_jax.storage import files, paths

OURS = "cat_jax"
# work -> library -> what does it; the result is ready when it returns.
Runs = Mapping[str, Mapping[str, Callable[[], Any]]]
Seconds = dict[str, dict[str, list[float]]]


def interleaved(
    runs: Runs, rounds: int, first: Callable[[str, str, Any], None] = lambda *_: None
) -> Seconds:
    """Seconds of each, `rounds` times in turn, after one round that compiles and is not counted.

    Args:
      runs: what to time.
      rounds: of all of them.
      first: sees the work, the library and the result of the round that is not counted.
    """
    seconds: Seconds = {work: {name: [] for name in made} for work, made in runs.items()}
    for round_number in range(rounds + 1):
        for work, made in runs.items():
            for name, run in made.items():
                started = time.perf_counter()
                found = run()
                if round_number:
                    seconds[work][name].append(time.perf_counter() - started)
                else:
                    first(work, name, found)
    return seconds


def medians_of(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """The median of each library's seconds."""
    return {name: statistics.median(times) for name, times in seconds.items()}


def table(seconds: Seconds, num_images: Mapping[str, int]) -> str:
    """Images per second, median over the rounds, and how many times the peer's speed ours is."""
    names = list(dict.fromkeys(name for of_work in seconds.values() for name in of_work))
    lines = [
        f"| images/s | {' | '.join(names)} |",
        "|".join(["", "---", *("---:" for _ in names), ""]),
    ]
    for work, of_work in seconds.items():
        medians = medians_of(of_work)
        cells = []
        for name in names:
            if name not in medians:
                cells.append("-")
                continue
            speed = f"{num_images[work] / medians[name]:.3g}"
            ratio = medians[name] / medians[OURS]
            cells.append(speed if name == OURS else f"{speed} (ours {ratio:.2f}x)")
        lines.append(f"| {work} | {' | '.join(cells)} |")
    return "\n".join(lines)


def output_file(text: str) -> pathlib.Path:
    """The path of --out, checked before anything is measured: the type of an argparse argument."""
    try:
        path = paths.local_path(text, "--out")
        files.check_writable_file(path, "--out")
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return path


def write(path: pathlib.Path | None, report: Mapping[str, Any]) -> None:
    """Writes a report as JSON; nothing without a path."""
    if path is not None:
        files.write_text(path, files.json_text(report, indent=1))


def installed(name: str) -> ModuleType | None:
    """The package, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # foolbox 3.3.4 imports what new SciPy deprecates.
        try:
            return importlib.import_module(name)
        except ImportError:
            return None


def machine(*packages: str) -> dict[str, Any]:
    """What the times depend on: cores, Python, and the versions of those that are installed."""
    versions = {}
    for name in ("cat_jax", "jax", "jaxlib", "flax", "numpy", *packages):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    python = sys.version.split()[0]
    return {"cores": len(os.sched_getaffinity(0)), "python": python, "versions": versions}
