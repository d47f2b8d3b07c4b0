"""Metrics of a run: metrics.jsonl, TensorBoard, and the watch for non-finite losses."""

import logging
import math
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from tensorboardX import SummaryWriter

from cat_jax.errors import NonFiniteLoss
from cat_jax.storage import files, run_folder

logger = logging.getLogger(__name__)
MOST_SKIPPED = 10  # Steps in a row, before a run stops.


class MetricsLog:
    """Means of the steps' metrics, one line in metrics.jsonl each time `flush` is called.

    Fetching a metric waits for its step: they stay on the device until then. A run that
    resumes at a step drops the lines beyond it, so none is ever missing or doubled; a checkpoint
    always has a line of its step.
    """

    def __init__(self, workdir: pathlib.Path, step: int) -> None:
        self._file = workdir / "metrics.jsonl"
        self._pending: list[tuple[int, int, Mapping[str, jax.Array]]] = []
        self.num_pending = 0  # Updates since the last flush.
        self._since = time.monotonic()
        self._in_a_row = 0  # Skipped steps.
        self.latest: dict[str, float] = {}
        kept = [line for line in self.lines() if line["step"] <= step]
        gap = step > 0 and (not kept or kept[-1]["step"] != step)
        if gap and jax.process_index() == 0:  # The others' file is a new one.
            logger.warning(
                "%s lacks lines before step %d, which is where it goes on: its curves have a gap.",
                *(self._file, step),
            )
        files.write_json_lines(self._file, kept)
        self._board = SummaryWriter(str(workdir / "tensorboard"), purge_step=step + 1)

    def add(self, step: int, metrics: Mapping[str, jax.Array], count: int = 1) -> None:
        """Keeps the metrics of the `count` updates up to the one that made step `step`.

        Those of several updates have an axis for them, of which the first `count` are meant.
        Waits for the call before it: more in flight would delay a stop, and gain nothing.
        """
        if self._pending:
            jax.block_until_ready(self._pending[-1])
        self._pending.append((step, count, metrics))
        self.num_pending += count

    def flush(self, num_images: int, **more: float) -> dict[str, float]:
        """Writes and returns the means since the last flush.

        They are of the steps that were made; those that were skipped are counted.

        Args:
          num_images: in a batch; gives images per second.
          **more: further fields, such as the epoch.

        Raises:
          NonFiniteLoss: naming the first step at which a metric is not finite; metrics.jsonl then
            ends with it, for those who read the file. Also after `MOST_SKIPPED` skipped steps in a
            row.
        """
        if not self._pending:
            return {}
        metrics = {
            int(step) - int(count) + 1 + i: {n: np.atleast_1d(x)[i] for n, x in values.items()}
            for step, count, values in jax.device_get(self._pending)
            for i in range(count)
        }
        made = [values for step, values in metrics.items() if self._made(step, values, more)]
        last, names = list(metrics.items())[-1]
        means = {n: float(sum(m[n] for m in made) / len(made)) for n in names if made}
        if "skipped" in names:
            means["skipped"] = float(len(metrics) - len(made))
        now = time.monotonic()
        means["images_per_second"] = len(metrics) * num_images / (now - self._since)
        self._pending, self.num_pending = [], 0
        self._since, self.latest = now, self.latest | means
        self.write(last, means | more)
        return means

    def _made(self, step: int, values: Mapping[str, Any], more: Mapping[str, float]) -> bool:
        """Whether the step was made, and not skipped."""
        not_finite = {name: float(x) for name, x in values.items() if not math.isfinite(x)}
        wrong = [f"{name} is {x}" for name, x in not_finite.items()]
        if wrong and "skipped" not in values:
            self.write(step, {**not_finite, **more})
            raise NonFiniteLoss(f"{wrong[0]} at step {step}")
        if not values.get("skipped"):
            self._in_a_row = 0
            return True
        what = wrong[0] if wrong else "its update is not finite"
        logger.warning("Step %d is skipped: %s.", step, what)
        self._in_a_row += 1
        if self._in_a_row == MOST_SKIPPED:
            raise NonFiniteLoss(f"{MOST_SKIPPED} steps in a row were skipped, up to step {step}")
        return False

    def restart_clock(self) -> None:
        """Leaves out of the next rate what was not training."""
        self._since = time.monotonic()

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """One line of metrics.jsonl, and the same numbers for TensorBoard."""
        with open(self._file, "a", encoding="utf-8") as stream:
            stream.write(files.json_line({"step": step, **values}))
        for name, value in values.items():
            if isinstance(value, float):
                self._board.add_scalar(name, value, step)

    def lines(self) -> list[dict[str, Any]]:
        """All that metrics.jsonl holds."""
        return run_folder.read_lines(self._file.parent, "metrics")

    def close(self) -> None:
        """Finishes the TensorBoard file."""
        self._board.close()
