"""A run of CAT in a process of its own, which the crash test kills."""

import os
import pathlib
import time

import small_runs

from cat_jax.cli import modes
from cat_jax.data import Feed
from cat_jax.report import mask_gallery, plots  # noqa: F401  Imported before a fork: once for all.
from cat_jax.runtime import terminal

OVERRIDES = {"save_every": 5, "log_every": 1, "evaluation": "none", "num_validation": 0}


def config(num_steps, **overrides):
    """A small run of CAT, of so many steps."""
    return small_runs.config(**OVERRIDES | overrides | {"num_steps": num_steps})


def run(workdir: pathlib.Path, num_steps: int, pause: float = 0.0, **overrides) -> None:
    """Starts the run, or resumes it, with a pause in each step; its output goes to workdir.log."""
    log = os.open(f"{workdir}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1), os.dup2(log, 2)
    terminal.start(0)
    if pause:
        feed = Feed.__call__

        def pausing(self, *arguments):
            time.sleep(pause)
            return feed(self, *arguments)

        Feed.__call__ = pausing
    modes.train(config(num_steps, **overrides), workdir)
