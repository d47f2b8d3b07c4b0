"""How the time of a training went, from metrics.jsonl."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cat_jax.report.grids import Grid
from cat_jax.runtime.terminal import duration


class Times(NamedTuple):
    """Sums over the lines of metrics.jsonl, over all starts of the run.

    Attributes:
      seconds: seconds of each activity, the longest first; "lost" are those of steps that a restart
        did again.
      lost_steps: number of those steps.
      slow_steps: number of steps that took more than three times the median.
    """

    seconds: dict[str, float]
    lost_steps: int
    slow_steps: int

    @classmethod
    def of_lines(cls, metrics: Sequence[Mapping[str, Any]]) -> "Times":
        """Those of the lines of a run."""
        seconds: collections.Counter[str] = collections.Counter()
        for line in metrics:
            seconds.update(line.get("seconds", {}))
        lost, slow = (
            sum(line.get(name, 0) for line in metrics) for name in ("lost_steps", "slow_steps")
        )
        return cls(dict(seconds.most_common()), lost, slow)

    def grid(self) -> Grid:
        """The table of a run's page; without rows for a run of an earlier version."""
        total = sum(self.seconds.values())
        notes = {"lost": f"{self.lost_steps} steps"} if self.lost_steps else {}
        if self.slow_steps:
            notes["stepping"] = f"{self.slow_steps} slow steps"
        rows = [
            [name, duration(seconds), f"{seconds / total:.1%}", notes.get(name, "")]
            for name, seconds in self.seconds.items()
        ]
        return Grid("times", "", ["activity", "time", "share", ""], rows)
