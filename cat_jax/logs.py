"""What a run tells: metrics.jsonl, TensorBoard, progress, and the watch for non-finite losses."""

import math
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import jax
from tensorboardX import SummaryWriter

from cat_jax import files


class NonFiniteLoss(RuntimeError):
    """A loss or a parameter is NaN or infinite; the message names the step."""


class MetricsLog:
    """Means of the steps' metrics, one line in metrics.jsonl each time `flush` is called.

    Fetching a metric waits for its step: they stay on the device until then. A run that
    resumes at a step drops the lines beyond it, so none is ever missing or doubled.
    """

    def __init__(self, workdir: pathlib.Path, step: int) -> None:
        self._file = workdir / "metrics.jsonl"
        self._pending: list[tuple[int, Mapping[str, jax.Array]]] = []
        self._since = time.monotonic()
        self.latest: dict[str, float] = {}
        files.write_json_lines(
            self._file, [r for r in files.read_json_lines(self._file) if r["step"] <= step]
        )
        self._board = SummaryWriter(str(workdir / "tensorboard"), purge_step=step + 1)

    def add(self, step: int, metrics: Mapping[str, jax.Array]) -> int:
        """Keeps the metrics of the update that made step `step`; returns how many are kept.

        Waits for the step before it: more in flight would delay a stop, and gain nothing.
        """
        if self._pending:
            jax.block_until_ready(self._pending[-1])
        self._pending.append((step, metrics))
        return len(self._pending)

    def flush(self, num_images: int, **more: float) -> dict[str, float]:
        """Writes and returns the means since the last flush.

        Args:
          num_images: in a batch; gives images per second.
          **more: further fields, such as the epoch.

        Raises:
          NonFiniteLoss: naming the first step at which a metric is not finite; metrics.jsonl then
            ends with it, for those who read the file.
        """
        if not self._pending:
            return {}
        steps, metrics = zip(*jax.device_get(self._pending), strict=True)
        for step, values in zip(steps, metrics, strict=True):
            for name, value in values.items():
                if not math.isfinite(value):
                    self.write(int(step), {name: float(value), **more})
                    raise NonFiniteLoss(f"{name} is {float(value)} at step {int(step)}")
        means = {n: float(sum(m[n] for m in metrics) / len(metrics)) for n in metrics[0]}
        now = time.monotonic()
        means["images_per_second"] = len(steps) * num_images / (now - self._since)
        self._pending, self._since, self.latest = [], now, means
        self.write(int(steps[-1]), means | more)
        return means

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
        return files.read_json_lines(self._file)

    def close(self) -> None:
        """Finishes the TensorBoard file."""
        self._board.close()
