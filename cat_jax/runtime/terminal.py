"""What a run shows on a terminal: log messages, progress bars, time estimates, colours."""

import logging
import os
import sys
import time
from typing import Any, TextIO

from tqdm import tqdm

logger = logging.getLogger(__name__)
TIMED = 5.0  # Seconds of steps, before it is said how long the others take.
YELLOW, RED = "33", "31"


class Pace:
    """How long the steps to come will take: said once, when the first ones are timed.

    The first two calls are left out: the step is compiled in them.
    """

    def __init__(self, total: int) -> None:
        self._total, self._calls = total, 0
        self._since, self._from = 0.0, 0
        self._said = False

    def after(self, done: int) -> str:
        """One line when step `done` is the one to say it after; otherwise nothing."""
        now, left = time.monotonic(), self._total - done
        self._calls += 1
        if self._calls <= 2:
            self._since, self._from = now, done
        seconds = now - self._since
        if self._said or seconds < TIMED or not left:
            return ""
        self._said = True
        each = seconds / (done - self._from)
        return (
            f"About {duration(each * left)} for {left} steps of {each:.2g} s; attacks come after."
        )


def duration(seconds: float) -> str:
    """Such as "40 s", "12 min" or "3 h 5 min"."""
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def bar(**settings: Any) -> tqdm:
    """A progress bar on standard error, if that is a terminal and progress is told at all."""
    told = logger.isEnabledFor(logging.INFO)
    return tqdm(disable=None if told else True, **settings)


def coloured(text: str, colour: str, stream: TextIO) -> str:
    """The text in a colour, if the stream is a terminal and NO_COLOR is not set."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain or not stream.isatty() else f"\033[{colour}m{text}\033[0m"


class _BarHandler(logging.Handler):
    """Writes above the progress bar instead of through it."""

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if record.levelno >= logging.WARNING:
            colour = RED if record.levelno >= logging.ERROR else YELLOW
            text = coloured(text, colour, sys.stderr)
        tqdm.write(text, file=sys.stderr)


def start(process: int, *, quiet: bool = False) -> None:
    """This package's messages on standard error: from INFO, of processes but 0 from WARNING.

    Args:
      process: which of several this is.
      quiet: process 0 too tells of nothing but warnings.
    """
    which = f"process {process}: " if process else ""
    handler = _BarHandler()
    handler.setFormatter(logging.Formatter(f"%(asctime)s {which}%(message)s", "%H:%M:%S"))
    package = logging.getLogger("cat_jax")
    package.setLevel(logging.WARNING if process or quiet else logging.INFO)
    package.propagate = False
    package.handlers = [handler]
