"""How the time of a run went: seconds of each activity, slow steps, and memory of the device."""

import collections
import logging
import statistics
from typing import Any

import jax

from cat_jax.runtime import activities

logger = logging.getLogger(__name__)
COMPILING, STEPPING, DATA = "compiling", "stepping", "waiting for data"
SLOW = 3  # A slow step takes more than this many times the median.
RECENT, MIN_RECENT = 100, 10  # Steps that the median is of; fewer decide nothing.
MIN_LOST = 1.0  # Seconds above the median from which the log names a slow step.


class Goodput:
    """Collects what a line of metrics.jsonl states about the time since the last line."""

    def __init__(self, device: jax.Device) -> None:
        """Args: `device`, whose memory is measured."""
        self._device = device
        self._recent = {part: collections.deque[float](maxlen=RECENT) for part in (STEPPING, DATA)}
        self._num_slow = 0
        self._worst: tuple[float, int, float, str] | None = None

    def add(self, step: int, count: int) -> None:
        """Measures the last call, of `count` steps up to `step`."""
        durations = activities.PROCESS.durations
        if not self._recent.keys() <= durations.keys():  # In another thread than the main one.
            return
        seconds = {part: durations[part][-1] / count for part in self._recent}
        medians = {
            part: statistics.median(recent) if recent else 0.0
            for part, recent in self._recent.items()
        }
        usual, total = sum(medians.values()), sum(seconds.values())
        if len(self._recent[STEPPING]) >= MIN_RECENT and total > SLOW * usual:
            self._num_slow += 1
            phase = max(seconds, key=lambda part: seconds[part] - medians[part])
            if total - usual > max(MIN_LOST, self._worst[0] if self._worst else 0.0):
                self._worst = (total - usual, step, total, phase)
        for part, recent in self._recent.items():
            recent.append(seconds[part])

    def take(self) -> dict[str, Any]:
        """The fields of a line, for the time since the last call; logs the slowest step."""
        seconds = activities.PROCESS.take()
        fields: dict[str, Any] = {
            "seconds": {name: round(value, 4) for name, value in seconds.items() if value},
        }
        if self._num_slow:
            fields["slow_steps"] = self._num_slow
        if self._worst is not None:
            lost, step, total, phase = self._worst
            logger.warning(
                "%d slow steps. The slowest was step %d: %.3g s instead of %.3g s while %s.",
                *(self._num_slow, step, total, total - lost, phase),
            )
        memory = self._device.memory_stats() or {}  # None on a CPU.
        if "peak_bytes_in_use" in memory:
            fields["peak_gigabytes"] = memory["peak_bytes_in_use"] / 1e9
        self._num_slow, self._worst = 0, None
        return fields
