"""What the main thread does, and how long: the watchdog and the table of times read it."""

import collections
import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

STARTING = "starting"
RECENT = 20  # Durations of an activity that are kept.


class Patience(NamedTuple):
    """Multiples of the watchdog's least limit that an activity may take.

    Attributes:
      unmeasured: multiple before the activity has ended a few times.
      measured: multiple from then on.
    """

    unmeasured: float
    measured: float


USUAL = Patience(12, 12)
STEP = Patience(12, 1)  # The first step of a process waits for compilation.
# On a CPU a batch of 5,000 queries to a large network may take half a day.
ATTACK = Patience(144, 12)


class Moment(NamedTuple):
    """What the main thread is doing.

    Attributes:
      serial: number of beginnings and ends of activities so far.
      name: name of the innermost activity.
      patience: its patience.
    """

    serial: int
    name: str
    patience: Patience


@dataclasses.dataclass
class _Activity:
    name: str
    account: str  # The activity that its seconds belong to.
    patience: Patience
    seconds: float = 0.0


class Activities:
    """A stack of activities, the seconds of each, and its recent durations.

    Attributes:
      durations: name -> the last durations, without the time of activities inside.
      now: what the main thread is doing; other threads may read it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begins with the activity "starting"."""
        self._clock = clock
        self._stack = [_Activity(STARTING, STARTING, USUAL)]
        self._since = clock()
        self._totals: dict[str, float] = collections.defaultdict(float)
        self.durations: dict[str, collections.deque[float]] = {}
        self.now = Moment(0, STARTING, USUAL)

    def take(self) -> dict[str, float]:
        """Seconds of each activity since the last call, without those of activities inside.

        They add up to the time since then, or since this object was created.
        """
        self._account()
        totals = dict(self._totals)
        self._totals.clear()
        return totals

    @contextlib.contextmanager
    def doing(
        self, name: str, patience: Patience = USUAL, *, is_part: bool = False
    ) -> Iterator[None]:
        """The block is an activity; in another thread than the main one it is not recorded.

        Args:
          name: name of the activity.
          patience: its patience.
          is_part: whether its seconds belong to the activity around it.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._account()
        account = self._stack[-1].account if is_part else name
        activity = _Activity(name, account, patience)
        self._stack.append(activity)
        self._show()
        try:
            yield
            self._account()
            self.durations.setdefault(name, collections.deque(maxlen=RECENT))
            self.durations[name].append(activity.seconds)
        finally:
            self._account()
            self._stack.pop()
            self._show()

    def _account(self) -> None:
        now, activity = self._clock(), self._stack[-1]
        activity.seconds += now - self._since
        self._totals[activity.account] += now - self._since
        self._since = now

    def _show(self) -> None:
        activity = self._stack[-1]
        self.now = Moment(self.now.serial + 1, activity.name, activity.patience)


PROCESS = Activities()  # Those of this process.
doing = PROCESS.doing
