"""Ends a process whose main thread makes no progress, so that a script can start it again.

A step waits for all devices of all processes. If one of them hangs, the others wait for ever, and
a signal has no effect, because its handler runs in the main thread.
"""

import contextlib
import faulthandler
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import NoReturn

from cat_jax.runtime import activities
from cat_jax.runtime.activities import Activities, Moment

INTERVAL = 1.0  # Seconds between two looks at the main thread.
MIN_MEASURED = 3  # Durations after which an activity counts as measured.
TIMES_LONGEST = 20  # The limit is at least this many times the longest of the last durations.
AFTER_SIGNAL = 10  # A signal to stop divides the least limit by this number.
REPORT_SECONDS = 10  # The process ends even if nobody reads its error output.


class Waiting:
    """Counts the seconds since the main thread last began or ended an activity."""

    def __init__(self, watched: Activities, least: float) -> None:
        """Args: `watched`, the activities; `least`, the limit of a measured step in seconds."""
        self._activities, self._least = watched, least
        self._moment = watched.now
        self.seconds = 0.0
        self.is_stopping = False  # Whether a signal has asked the process to stop.

    def add(self, seconds: float) -> str:
        """Adds the seconds since the last call; returns the error once a limit is exceeded."""
        moment = self._activities.now
        self.seconds = self.seconds + seconds if moment == self._moment else 0.0
        self._moment = moment
        limit = self.limit(moment)
        if self.seconds <= limit:
            return ""
        return (
            f"No progress for {self.seconds:.0f} s while {moment.name} (limit {limit:.0f} s, see "
            "config.watchdog_minutes): this process or another one is stuck. Stacks of all "
            "threads follow. Start all processes again: the run resumes from its last checkpoint."
        )

    def limit(self, moment: Moment) -> float:
        """The seconds that an activity may take, which follow its last durations."""
        durations = list(self._activities.durations.get(moment.name, ()))
        is_measured = len(durations) >= MIN_MEASURED
        multiple = moment.patience.measured if is_measured else moment.patience.unmeasured
        least = self._least / AFTER_SIGNAL if self.is_stopping else self._least
        return max(multiple * least, TIMES_LONGEST * max(durations, default=0.0))


@contextlib.contextmanager
def watching(
    least: float, process: int | None = None, watched: Activities = activities.PROCESS
) -> Iterator[None]:
    """Ends the process with status 75 if, in the block, its main thread makes no progress.

    It writes the stacks of all threads to standard error first.

    Args:
      least: limit of a step in seconds, unless steps take long; the limits of other activities are
        multiples of it. 0: no limits.
      process: index of this process, if there are several.
      watched: activities of the main thread.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not least or not is_main:
        yield
        return
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    # Because Python's C handler writes here at once, also while the main thread is blocked.
    former = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    ended = threading.Event()
    arguments = (Waiting(watched, least), min(INTERVAL, least / 10), ended, ours, process)
    thread = threading.Thread(target=_watch, args=arguments, name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(former)
        theirs.close()  # Wakes the thread.
        thread.join()
        ours.close()


def _watch(
    waiting: Waiting,
    interval: float,
    ended: threading.Event,
    signals: socket.socket,
    process: int | None,
) -> None:
    before = time.monotonic()
    while not ended.is_set():
        select.select([signals], [], [], interval)
        waiting.is_stopping |= _asks_to_stop(signals)
        now = time.monotonic()
        # Because a process that was stopped and continued, like a machine that slept, is not stuck.
        error = waiting.add(min(now - before, 2 * interval))
        before = now
        if error and not ended.is_set():
            _end(error, waiting.seconds, process)


def _asks_to_stop(signals: socket.socket) -> bool:
    """Whether one of the signals that have arrived asks the process to stop."""
    try:
        numbers = signals.recv(4096, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    return bool({signal.SIGTERM, signal.SIGINT} & set(numbers))


def _end(error: str, waited: float, process: int | None) -> NoReturn:
    """Reports, and ends the process."""
    which = f"process {process}: " if process is not None else ""

    def report() -> None:
        # Not by a logger, whose lock a thread that is stuck may hold.
        os.write(sys.stderr.fileno(), f"{which}{error}\n".encode())
        faulthandler.dump_traceback(sys.stderr, all_threads=True)

    reporting = threading.Thread(target=report, daemon=True)
    reporting.start()
    reporting.join(REPORT_SECONDS)
    if process is not None:
        # Because jax aborts the others once process 0 is gone, and they report a little later.
        grace = 3 + waited / 20
        time.sleep(grace if process else 2 * grace)
    os._exit(os.EX_TEMPFAIL)
