"""Requests to stop: SIGTERM and Ctrl-C, which the training loop obeys between two steps."""

import contextlib
import dataclasses
import logging
import math
import signal
import time
from collections.abc import Iterator

logger = logging.getLogger(__name__)
# Seconds after which another Ctrl-C is not the first one, forwarded by a script.
MIN_INTERVAL = 1.0


@dataclasses.dataclass
class Stop:
    """Set by SIGTERM or Ctrl-C: the loop saves and ends after the step it is in."""

    requested: bool = False
    since: float = math.inf  # Time of the first request.


@contextlib.contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Turns SIGTERM and Ctrl-C into a request; outside the main thread it changes nothing.

    Raises:
      KeyboardInterrupt: at a second Ctrl-C, before the step has ended.
    """
    stop, former = Stop(), {}

    def ask(number: int, frame: object) -> None:
        del frame
        now = time.monotonic()
        if number == signal.SIGINT and now - stop.since > MIN_INTERVAL:
            raise KeyboardInterrupt
        again = " Ctrl-C again ends at once, unsaved." if number == signal.SIGINT else ""
        logger.info("Got %s; saving after this step.%s", signal.Signals(number).name, again)
        stop.requested, stop.since = True, min(now, stop.since)

    with contextlib.suppress(ValueError):
        for number in (signal.SIGTERM, signal.SIGINT):
            former[number] = signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
