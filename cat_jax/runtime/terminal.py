"""What a run shows on a terminal: log messages, progress bars, time estimates, colours."""

import contextlib
import logging
import os
import pathlib
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any, TextIO

from tqdm import tqdm

logger = logging.getLogger(__name__)
MIN_SECONDS = 5.0  # Of measured work, before the log states an estimate.
YELLOW, RED = "33", "31"
WIDTH = 100  # Characters of a line where there is no terminal.
FORMAT = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}{postfix}"


class Clock:
    """Measures the seconds per item of work, without compilation and pauses.

    Attributes:
      seconds_per_item: mean of the measured items; None before there is one.
    """

    def __init__(self, total: int, warmup: int) -> None:
        """Args: `total`, the number of items; `warmup`, the updates that include compilation."""
        self._total, self._warmup = total, warmup
        self._start, self._first = 0.0, 0
        self._is_stated = False
        self.seconds_per_item: float | None = None

    def update(self, num_done: int) -> None:
        """Measures up to item `num_done`."""
        now = time.monotonic()
        if self._warmup:
            self._warmup -= 1
            self._start, self._first = now, num_done
        elif num_done > self._first:
            self.seconds_per_item = (now - self._start) / (num_done - self._first)

    def exclude(self, seconds: float) -> None:
        """Subtracts time that was not spent on items."""
        self._start += seconds

    def left(self, num_done: int) -> float | None:
        """Estimated seconds for the remaining items; None before anything was measured."""
        rate = self.seconds_per_item
        return None if rate is None else rate * (self._total - num_done)

    def estimate(self, num_done: int) -> str:
        """Such as "12 min (800 steps at 0.9 s)" once enough was measured; "" before and after."""
        left, rate = self.left(num_done), self.seconds_per_item
        if self._is_stated or not left or rate is None:
            return ""
        if rate * (num_done - self._first) < MIN_SECONDS:
            return ""
        self._is_stated = True
        return f"{duration(left)} ({self._total - num_done} steps at {rate:.2g} s)"


class Progress:
    """A progress bar with one rate and one estimate of the time left; silent without a terminal.

    A thread counts the seconds, so that the bar moves while a program compiles and while one batch
    takes minutes.
    """

    def __init__(
        self,
        text: str,
        total: int,
        unit: str,
        *,
        start: int = 0,
        warmup: int = 1,
        expected: float | None = None,
        shown: bool | None = None,
    ) -> None:
        """Shows the bar.

        Args:
          text: name of the work.
          total: number of items.
          unit: name of an item.
          start: number of items that are done already.
          warmup: number of updates that include compilation.
          expected: estimated seconds of the work, if known before the first item.
          shown: whether to show it; default: if the log shows progress.
        """
        self.clock = Clock(total, warmup)
        self._text, self._unit, self._expected, self._note = text, unit, expected, ""
        self._doing, self._begin, self._last_shown = "compiling", time.monotonic(), 0.0
        shown = logger.isEnabledFor(logging.INFO) if shown is None else shown
        settings: dict[str, Any] = dict(leave=False, bar_format=FORMAT, dynamic_ncols=True)
        self._bar = tqdm(total=total, initial=start, disable=None if shown else True, **settings)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._count_seconds, daemon=True)
        if not self._bar.disable:
            self._show()
            self._thread.start()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._bar.close()

    def update(self, num_done: int, note: str = "") -> None:
        """Moves the bar to `num_done` items; a note stays at its end until the next one."""
        if self._doing:
            self._doing, self._begin = "", time.monotonic()
        self._note = note or self._note
        self.clock.update(num_done)
        self._bar.n = num_done
        if time.monotonic() - self._last_shown > 0.1:
            self._show()

    @contextlib.contextmanager
    def doing(self, text: str) -> Iterator[None]:
        """Shows other work, such as "validating"; the rate leaves out its time."""
        self._doing, self._begin = text, time.monotonic()
        self._show()
        try:
            yield
        finally:
            self._doing = ""
            self.clock.exclude(time.monotonic() - self._begin)
            self._show()

    def _count_seconds(self) -> None:
        while not self._stop.wait(1.0):
            self._show()

    def _show(self) -> None:
        if self._bar.disable:
            return
        self._last_shown = time.monotonic()
        elapsed = duration(self._last_shown - self._begin)
        texts = [elapsed] if self._doing else [*self._speed(), self._note]
        text = f"{self._text}, {self._doing}" if self._doing else self._text
        self._bar.set_description_str(text, refresh=False)
        self._bar.set_postfix_str(", ".join(filter(None, texts)), refresh=True)

    def _speed(self) -> list[str]:
        """The rate and the time left, or the elapsed time before there is an estimate."""
        rate, left = self.clock.seconds_per_item, self.clock.left(self._bar.n)
        if rate is not None and left is not None:
            return [speed(rate, self._unit), f"{duration(left)} left"]
        elapsed = self._last_shown - self._begin
        if self._expected is None:
            return [duration(elapsed)]
        return [f"{duration(max(self._expected - elapsed, 0.0))} left"]


def speed(seconds_per_item: float, unit: str) -> str:
    """Such as "3.2 steps/s" or "4.1 s/step"."""
    if seconds_per_item > 1:
        return f"{seconds_per_item:.2g} s/{unit}"
    return f"{1 / max(seconds_per_item, 1e-9):.3g} {unit}s/s"


def duration(seconds: float) -> str:
    """Such as "40 s", "12 min" or "3 h 5 min"."""
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def width() -> int:
    """The characters of a line: those of the terminal, or `WIDTH` without one."""
    return shutil.get_terminal_size((WIDTH, 24)).columns


def coloured(text: str, colour: str, stream: TextIO) -> str:
    """The text in a colour, if the stream is a terminal and NO_COLOR is not set."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain or not stream.isatty() else f"\033[{colour}m{text}\033[0m"


class _BarHandler(logging.Handler):
    """Writes messages above the progress bar; on a terminal, lines break between words."""

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if sys.stderr.isatty():
            text = "\n".join(_wrapped(line) for line in text.split("\n"))
        if record.levelno >= logging.WARNING:
            colour = RED if record.levelno >= logging.ERROR else YELLOW
            text = coloured(text, colour, sys.stderr)
        tqdm.write(text, file=sys.stderr)


def _wrapped(line: str) -> str:
    if len(line) <= width():
        return line
    settings: dict[str, Any] = dict(break_long_words=False, break_on_hyphens=False)
    return textwrap.fill(line, width(), subsequent_indent=" " * 9, **settings)


def start(process: int, *, quiet: bool = False) -> None:
    """Sends this package's messages to standard error: INFO in process 0, WARNING in others.

    Args:
      process: index of this process.
      quiet: whether process 0 logs warnings only.
    """
    which = f"process {process}: " if process else ""
    handler = _BarHandler()
    handler.setFormatter(logging.Formatter(f"%(asctime)s {which}%(message)s", "%H:%M:%S"))
    package = logging.getLogger("cat_jax")
    package.setLevel(logging.WARNING if process or quiet else logging.INFO)
    package.propagate = False
    package.handlers = [handler]


class _FileHandler(logging.FileHandler):
    """Drops messages that a full disk does not take; the run itself reports the disk."""

    def handleError(self, record: logging.LogRecord) -> None:
        del record


@contextlib.contextmanager
def also_in(file: pathlib.Path) -> Iterator[None]:
    """Appends this package's messages to a file too, with their dates, while the block runs."""
    handler, package = _FileHandler(file, encoding="utf-8"), logging.getLogger("cat_jax")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    package.addHandler(handler)
    try:
        yield
    finally:
        package.removeHandler(handler)
        handler.close()
