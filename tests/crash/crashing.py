"""What the crash test runs in processes of its own, which are killed."""

import os
import pathlib

import small_runs

from cat_jax.cli import modes
from cat_jax.configs import digits
from cat_jax.runtime import terminal

OVERRIDES = {"save_every": 5, "log_every": 1, "evaluation": "none", "num_validation": 0}


def config(num_steps):
    """Plain training: the quickest to compile."""
    made = digits.get_config("standard")
    made.update_from_flattened_dict(small_runs.OVERRIDES | OVERRIDES | {"num_steps": num_steps})
    return made


def run(workdir: pathlib.Path, num_steps: int) -> None:
    """A start of the run; what it says goes to workdir.log."""
    log = os.open(f"{workdir}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1), os.dup2(log, 2)
    terminal.start(0)
    modes.train(config(num_steps), workdir)
