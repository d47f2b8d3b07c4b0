"""A JAX trace of some steps, for --profile."""

import logging
import pathlib

import jax

from cat_jax.errors import UsageError
from cat_jax.types import PyTree

logger = logging.getLogger(__name__)


def read_steps(text: str) -> range:
    """The steps of "START:STOP", counted from 0, without STOP.

    Raises:
      UsageError: for other text, and for a range without steps.
    """
    start, _, stop = text.partition(":")
    if start.isdecimal() and stop.isdecimal() and int(start) < int(stop):
        return range(int(start), int(stop))
    raise UsageError(f"--profile is {text!r}; expected START:STOP, such as --profile=100:110.")


class Trace:
    """Traces the calls that begin at the given steps."""

    def __init__(self, folder: pathlib.Path, steps: range) -> None:
        """Starts nothing yet; an empty range traces nothing."""
        self._folder, self._steps = folder, steps
        self._is_running = False

    def before(self, step: int, state: PyTree) -> None:
        """Starts or ends the trace before step `step`, which computes on `state`."""
        if step in self._steps and not self._is_running:
            jax.block_until_ready(state)
            jax.profiler.start_trace(str(self._folder))
            self._is_running = True
        elif step not in self._steps:
            self.close(state)

    def close(self, state: PyTree = None) -> None:
        """Ends the trace, if there is one, after the steps on the devices."""
        if self._is_running:
            jax.block_until_ready(state)
            jax.profiler.stop_trace()
            self._is_running, self._steps = False, range(0)
            logger.info("Trace of the steps: tensorboard --logdir=%s", self._folder)
