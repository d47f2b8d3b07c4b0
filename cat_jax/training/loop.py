"""The training loop: steps, validations, checkpoints, and resuming from them."""

import contextlib
import fractions
import functools
import logging
import math
import pathlib
from typing import Any

import jax

from cat_jax import data
from cat_jax.errors import NonFiniteLoss, UsageError
from cat_jax.experiment.experiment import Experiment
from cat_jax.runtime import processes, terminal
from cat_jax.runtime.signals import Stop, stop_on_signal
from cat_jax.step.state import TrainState, weights_of
from cat_jax.storage import checkpoint, disk_errors
from cat_jax.storage.metrics import MetricsLog
from cat_jax.storage.run_folder import RunFolder
from cat_jax.storage.saving import Saver
from cat_jax.training import initial, validation
from cat_jax.training.average_norm import AverageNorm
from cat_jax.training.validation import Validator, describe

logger = logging.getLogger(__name__)


def train(
    experiment: Experiment,
    dataset: data.Dataset,
    folder: RunFolder,
    devices: list[jax.Device],
) -> bool:
    """Trains to the last step, from the newest checkpoint if there is one.

    Args:
      experiment: experiment of the run, as `build_experiment` returns it.
      dataset: data of the run.
      folder: folder for metrics.jsonl, tensorboard/ and checkpoints/; process 0 alone reads and
        writes checkpoints.
      devices: devices that the experiment was built for.

    Returns:
      True when all steps are done; False when a signal stopped the run, with its state saved.

    Raises:
      UsageError: if a loss is not finite, unless the run skips such steps, or the disk is full.
        The checkpoints stay unchanged.
    """
    run = _Run(experiment, dataset, folder, devices)
    with stop_on_signal() as stop, contextlib.closing(run.log), contextlib.closing(run.saver):
        try:
            with disk_errors.explained(folder, run.describe_saved):
                return run.loop(stop)
        except NonFiniteLoss as error:
            has_gamma = experiment.config.awp.gamma
            setting = "learning rate or config.awp.gamma" if has_gamma else "learning rate"
            raise UsageError(
                f"Training stopped: {error}. {run.describe_saved()} Try a smaller {setting}, or "
                "another workdir with --config.non_finite=skip."
            ) from error


class _Run:
    """Data, folders and helpers of one run; only `loop` changes the state."""

    def __init__(
        self,
        experiment: Experiment,
        dataset: data.Dataset,
        folder: RunFolder,
        devices: list[jax.Device],
    ) -> None:
        config = experiment.config
        self.experiment, self.config, self.devices = experiment, config, devices
        self.step_fn = experiment.step_fn
        self.key = jax.random.key(config.seed)
        self.folder, self.last = folder, folder.checkpoint("last")
        self.dataset = dataset
        self.split, held_out = data.split_validation(
            dataset.train, config.num_validation, config.seed
        )
        self.validator = Validator(experiment, dataset, held_out, devices)
        self.feed = data.Feed(
            *(self.split, config.seed, config.batch_size, len(devices)),
            *(processes.places(devices), experiment.steps_per_call),
        )
        self.average_norm = None
        if experiment.average is not None and config.average.batch_norm == "recomputed":
            parts = (experiment.phases.classifier, experiment.augment, self.feed, self.key)
            self.average_norm = AverageNorm(*parts, devices)
        state, self.start = processes.from_first(self._begin)
        self.state = processes.replicate(state, devices)
        self.log = MetricsLog(folder, self.start)
        self.saver = Saver()

    def _begin(self) -> tuple[TrainState, int]:
        for best in self.folder.checkpoints.glob("best*"):
            checkpoint.newest(best)  # To report damage now, and not at a validation.
        newest = checkpoint.newest(self.last)
        if newest is None:
            state, config = self.experiment.begin(), self.config
            if config.init_from:
                source = config.init_from, config.init_weights
                state = initial.begin(state, self.experiment.classifier, *source)
            return state, 0
        state = checkpoint.restore(newest, jax.eval_shape(self.experiment.init))
        if newest.step < self.experiment.num_steps:
            logger.info("Resuming from the checkpoint of step %d.", newest.step)
            self._warn_of_devices(newest)
        return state, newest.step

    def _warn_of_devices(self, resumed: checkpoint.Checkpoint) -> None:
        before, now = resumed.meta.get("num_devices"), len(self.devices)
        if before not in (None, now) and not self.config.sync_batch_norm:
            logger.warning(
                "Each device computes its own batch statistics (config.sync_batch_norm=False): on "
                "%d devices, instead of %d, the run computes other statistics.",
                *(now, before),
            )

    def loop(self, stop: Stop) -> bool:
        """Steps until the last one, or until asked to stop."""
        config, total = self.config, self.experiment.num_steps
        state = self.state
        agree = processes.Agreement()
        progress = terminal.Progress("training", total, "step", start=self.start, warmup=2)
        with progress:
            step = self.start
            while step < total:
                self.saver.poll()
                count = self._until_event(step)
                state, metrics = self.step_fn(state, self.feed(step, count), self.key)
                step, note, stopping = step + count, "", agree(stop.requested)
                self.log.add(step, metrics, count)
                validate, save = self._validates_at(step), stopping or self._saves_at(step)
                if self.log.num_pending >= config.log_every or validate or save:
                    note = self._flush(step)
                progress.update(step, note)
                if self.average_norm is not None and (validate or save):
                    with progress.doing("averaging"):
                        state = self.average_norm(state)
                if validate:
                    with progress.doing("validating"):
                        self._validate(state, step)
                if validate or save:
                    self._save(self.last, state, config.keep_checkpoints, {})
                if estimate := progress.clock.estimate(step):
                    logger.info(
                        "About %s of training left, plus validations and the evaluation.", estimate
                    )
                if stopping and step < total:
                    self.saver.wait()
                    logger.info("Stopped by a signal at step %d of %d, saved.", step, total)
                    return False
        if not len(self.validator.split.labels):
            for suffix in weights_of(state):
                self._save(self.folder.checkpoint(f"best{suffix}"), state, 1, {"score": -1.0})
        self.saver.wait()
        return True

    def describe_saved(self) -> str:
        """One sentence that names the newest checkpoint."""
        if not processes.is_first():
            return ""
        self.saver.close()
        newest = checkpoint.newest(self.last)
        if newest is None:
            return "No checkpoint had been written."
        return f"The checkpoint of step {newest.step} is kept in {newest.path}."

    def _until_event(self, step: int) -> int:
        """Number of steps in one call: up to the next validation, checkpoint or line of the log."""
        max_steps = min(self.feed.steps_per_call, self.config.log_every - self.log.num_pending)
        for count in range(1, max_steps):
            if self._validates_at(step + count) or self._saves_at(step + count):
                return count
        return max_steps

    def _saves_at(self, step: int) -> bool:
        return step == self.experiment.num_steps or step % self.config.save_every == 0

    def _epoch(self, step: int) -> float:
        return step * self.config.batch_size / len(self.split.labels)

    def _validates_at(self, step: int) -> bool:
        """At the first step after every few epochs, or every part of one, and at the end."""
        if not len(self.validator.split.labels):
            return False
        # From its text, because 0.1 in binary is a little more than a tenth.
        every = fractions.Fraction(str(self.config.validation.every_epochs))
        epochs = fractions.Fraction(step * self.config.batch_size, len(self.split.labels))
        clock = data.Clock(len(self.split.labels), self.config.batch_size)
        begins = step == clock.steps_until(epochs // every * every)
        return step == self.experiment.num_steps or begins

    def _flush(self, step: int) -> str:
        """Writes the metrics of the last steps; returns the classifier's loss as a text."""
        rate = float(self.experiment.learning_rate(step - 1))
        means = self.log.flush(self.config.batch_size, epoch=self._epoch(step), learning_rate=rate)
        return f"loss {means['classifier_loss']:.3g}" if "classifier_loss" in means else ""

    def _validate(self, state: TrainState, step: int) -> None:
        """Measures, logs and writes the scores of a state; keeps the best one in best/.

        The average of the classifier, if there is one, has its own best_average/.
        """
        scores, epoch = self.validator(state), self._epoch(step)
        for suffix, total in validation.totals(scores, self.config.validation.chosen_by):
            best = self.folder.checkpoint(f"best{suffix}")
            previous = processes.from_first(functools.partial(self._newest, best))
            if previous is None or total > previous.meta["score"]:
                self._save(best, state, 1, {"score": total, **scores})
        mask = self.log.latest.get("mask", 1.0)  # The mean over the steps of the last log line.
        self.log.write(step, {"epoch": epoch, **scores, "validation_mask": mask})
        mask_text = f", mask {mask:.2f}" if state.mask_net.params else ""
        split = {"test": "Test split"}.get(self.config.selection, "Validation")
        logger.info("%s, epoch %.3g: %s%s", split, epoch, describe(scores), mask_text)
        for text in self.validator.warnings(self.log.lines()):
            logger.warning("%s", text)
        self.log.restart_clock()

    def _newest(self, folder: pathlib.Path) -> checkpoint.Checkpoint | None:
        self.saver.wait()
        return checkpoint.newest(folder)

    def _save(
        self, folder: pathlib.Path, state: TrainState, keep: int, meta: dict[str, Any]
    ) -> None:
        meta = {
            "epoch": self._epoch(int(state.step)),
            "num_devices": len(self.devices),
            "image_shape": list(self.dataset.spec.image_shape),
            "class_names": list(self.dataset.class_names),
            **meta,
        }

        def save() -> None:
            self.saver.save(folder, state, meta, keep=keep)
            if jax.process_count() > 1:
                self.saver.wait()  # So that the others get its errors now.

        try:
            processes.from_first(save)
        except NonFiniteLoss:
            self.log.write(int(state.step), {"parameters": math.nan, **meta})
            raise
        self.log.restart_clock()
