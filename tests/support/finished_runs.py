"""The small run that tests of pages, reports, exports and verification read."""

import fcntl
import os

import small_runs

from cat_jax.cli import modes

COMMAND = "python -m cat_jax.main --config='a b'"
EVALUATED = {"evaluation": "quick,curve", "test.num_checked": 16}


def config(**overrides):
    """The config of the run."""
    return small_runs.config(**EVALUATED | overrides)


def shared(base):
    """Workdir of the run; the first worker of pytest-xdist trains it, the others wait.

    Args:
      base: temporary folder of this process, in the folder of its session.
    """
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    workdir, lock = folder / "finished" / "run", folder / "finished.lock"
    with open(lock, "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        if not workdir.exists():
            unfinished = folder / "unfinished" / "run"
            modes.train(config(), unfinished, command=COMMAND)
            unfinished.parent.rename(workdir.parent)
    return workdir
