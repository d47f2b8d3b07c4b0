"""Metrics of a run: metrics.jsonl, TensorBoard, and the check for non-finite losses."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from tensorboardX import SummaryWriter

from cat_jax.errors import NonFiniteLoss
from cat_jax.storage import files
from cat_jax.storage.run_folder import RunFolder
from cat_jax.storage.trackers import Tracker

logger = logging.getLogger(__name__)
MAX_SKIPPED = 10  # Number of consecutive skipped steps that stops a run.


class MetricsLog:
    """Means of the metrics of steps, one line in metrics.jsonl for each call of `flush`.

    Metrics stay on the device until then, because fetching one waits for its step. A run that
    resumes at a step drops the lines beyond it, so no line is missing or repeated; a checkpoint
    always has a line of its step.
    """

    def __init__(self, folder: RunFolder, step: int, tracker: Tracker | None = None) -> None:
        self._folder, self._file = folder, folder.lines_file("metrics")
        self._tracker = tracker
        self._pending: list[tuple[int, int, Mapping[str, jax.Array]]] = []
        self.num_pending = 0  # Updates since the last flush.
        self._since = time.monotonic()
        self._num_skipped = 0  # Consecutive skipped steps.
        self.latest: dict[str, float] = {}
        lines = self.lines()
        earlier = [line for line in lines if line["step"] <= step]
        self._lost = _lost(lines, step)
        gap = step > 0 and (not earlier or earlier[-1]["step"] != step)
        if gap and jax.process_index() == 0:  # Because other processes have an empty file.
            logger.warning(
                "%s lacks lines before step %d, where the run resumes: its curves have a gap.",
                *(self._file, step),
            )
        files.write_json_lines(self._file, earlier)
        self._board = SummaryWriter(str(folder.tensorboard), purge_step=step + 1)

    def add(self, step: int, metrics: Mapping[str, jax.Array], count: int = 1) -> None:
        """Keeps the metrics of the `count` updates that end with step `step`.

        Metrics of several updates have a leading axis, whose first `count` entries count. It waits
        for the metrics of the previous call, because more steps in flight would delay a stop.
        """
        if self._pending:
            jax.block_until_ready(self._pending[-1])
        self._pending.append((step, count, metrics))
        self.num_pending += count

    def flush(self, num_images: int, **extra: Any) -> dict[str, float]:
        """Writes and returns the means over the updates since the last flush.

        It counts skipped steps, whose metrics the means leave out.

        Args:
          num_images: size of a batch, for images per second.
          **extra: further fields of the line, such as the epoch.

        Raises:
          NonFiniteLoss: naming the first step at which a metric is not finite, which metrics.jsonl
            then ends with; also after `MAX_SKIPPED` consecutive skipped steps.
        """
        if not self._pending:
            return {}
        metrics = {
            int(step) - int(count) + 1 + i: {n: np.atleast_1d(x)[i] for n, x in values.items()}
            for step, count, values in jax.device_get(self._pending)
            for i in range(count)
        }
        updates = [
            values for step, values in metrics.items() if self._is_update(step, values, extra)
        ]
        last, names = list(metrics.items())[-1]
        means = {n: float(sum(m[n] for m in updates) / len(updates)) for n in names if updates}
        if "skipped" in names:
            means["skipped"] = float(len(metrics) - len(updates))
        now = time.monotonic()
        means["images_per_second"] = len(metrics) * num_images / (now - self._since)
        self._pending, self.num_pending = [], 0
        self._since, self.latest = now, self.latest | means
        self.write(last, means | extra)
        return means

    def _is_update(self, step: int, values: Mapping[str, Any], extra: Mapping[str, Any]) -> bool:
        """Whether the step changed the state; False if it was skipped."""
        not_finite = {name: float(x) for name, x in values.items() if not math.isfinite(x)}
        problems = [f"{name} is {x}" for name, x in not_finite.items()]
        if problems and "skipped" not in values:
            self.write(step, {**not_finite, **extra})
            raise NonFiniteLoss(f"{problems[0]} at step {step}")
        if not values.get("skipped"):
            self._num_skipped = 0
            return True
        problem = problems[0] if problems else "its update is not finite"
        logger.warning("Step %d is skipped: %s.", step, problem)
        self._num_skipped += 1
        if self._num_skipped == MAX_SKIPPED:
            raise NonFiniteLoss(f"{MAX_SKIPPED} steps in a row were skipped, up to step {step}")
        return False

    def restart_clock(self) -> None:
        """Excludes the time until now from the next rate, because it was not training."""
        self._since = time.monotonic()

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Writes a line of metrics.jsonl, and the same numbers for TensorBoard and a tracker.

        The first line with seconds also states what the last restart lost.
        """
        if "seconds" in values and self._lost:
            lost, self._lost = self._lost, {}
            values = {**values, **lost, "seconds": {**lost["seconds"], **values["seconds"]}}
        with open(self._file, "a", encoding="utf-8") as stream:
            stream.write(files.json_line({"step": step, **values}))
        numbers = {name: value for name, value in values.items() if isinstance(value, float)}
        for name, value in numbers.items():
            self._board.add_scalar(name, value, step)
        if self._tracker is not None:
            self._tracker.log(step, numbers)

    def lines(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return self._folder.read_lines("metrics")

    def close(self) -> None:
        """Finishes the TensorBoard file and the tracker's run."""
        self._board.close()
        if self._tracker is not None:
            self._tracker.close()


def _lost(lines: Sequence[Mapping[str, Any]], step: int) -> dict[str, Any]:
    """What a run that resumes at a step does again: {} or "lost_steps" and {"lost": seconds}."""
    dropped = [line for line in lines if line["step"] > step]
    if not dropped:
        return {}
    seconds = sum(sum(line.get("seconds", {}).values()) for line in dropped)
    earlier = sum(line.get("lost_steps", 0) for line in dropped)
    return {
        "lost_steps": dropped[-1]["step"] - step + earlier,
        "seconds": {"lost": round(seconds, 4)},
    }
