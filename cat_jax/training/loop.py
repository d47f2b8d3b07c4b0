"""The loop: steps, validations, checkpoints; and going on where a run was stopped."""

import contextlib
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
from cat_jax.storage import checkpoint, paths
from cat_jax.storage.metrics import MetricsLog
from cat_jax.storage.saving import Saver
from cat_jax.training import validation
from cat_jax.training.validation import Validator, describe

logger = logging.getLogger(__name__)


def train(
    experiment: Experiment,
    dataset: data.Dataset,
    workdir: pathlib.Path,
    devices: list[jax.Device],
) -> bool:
    """Trains to the last step, from the newest checkpoint if there is one.

    Args:
      experiment: what `experiment.build_experiment` made.
      dataset: its data.
      workdir: gets metrics.jsonl, tensorboard/ and checkpoints/, of which process 0 alone writes
        and reads the last.
      devices: those that the experiment was built for.

    Returns:
      True when all steps are done; False when a signal stopped it, with its state saved.

    Raises:
      UsageError: if a loss is not finite, unless such steps are skipped, or the disk is full.
        Checkpoints stay as they are.
    """
    run = _Run(experiment, dataset, workdir, devices)
    with stop_on_signal() as stop, contextlib.closing(run.log), contextlib.closing(run.saver):
        try:
            return run.loop(stop)
        except NonFiniteLoss as error:
            smaller = "learning rate or config.awp.gamma"
            smaller = smaller if experiment.config.awp.gamma else "learning rate"
            raise UsageError(
                f"Training stopped: {error}. {run.kept()} Try a smaller {smaller}, or another "
                "workdir with --config.non_finite=skip."
            ) from error
        except OSError as error:
            if processes.is_first() and not paths.is_of_folder(error, workdir):
                raise
            raise UsageError(
                f"Training stopped: {error}. {run.kept()} Free disk space or fix the permissions "
                f"of {workdir}, then run the same command again to resume."
            ) from error


class _Run:
    """One run's data, folders and helpers; the state goes through `loop` alone."""

    def __init__(
        self,
        experiment: Experiment,
        dataset: data.Dataset,
        workdir: pathlib.Path,
        devices: list[jax.Device],
    ) -> None:
        config = experiment.config
        self.experiment, self.config, self.devices = experiment, config, devices
        self.step_fn = experiment.step_fn
        self.folders = workdir / "checkpoints"
        self.last = self.folders / "last"
        self.dataset = dataset
        self.split, held_out = data.split_validation(
            dataset.train, config.num_validation, config.seed
        )
        self.validator = Validator(experiment, dataset, held_out, devices)
        self.feed = data.Feed(
            *(self.split, config.seed, config.batch_size, len(devices)),
            *(processes.places(devices), experiment.steps_per_call),
        )
        state, self.start = processes.from_first(self._begin)
        self.state = processes.replicate(state, devices)
        self.log = MetricsLog(workdir, self.start)
        self.saver = Saver()

    def _begin(self) -> tuple[TrainState, int]:
        for best in self.folders.glob("best*"):
            checkpoint.newest(best)  # What is damaged is said now, and not at a validation.
        found = checkpoint.newest(self.last)
        if found is None:
            return self.experiment.begin(), 0
        state = checkpoint.restore(found, jax.eval_shape(self.experiment.init))
        if found.step < self.experiment.num_steps:
            logger.info("Resuming from the checkpoint of step %d.", found.step)
            before, now = found.meta.get("num_devices"), len(self.devices)
            if before not in (None, now) and not self.config.sync_batch_norm:
                logger.warning(
                    "Batch statistics are of each device (config.sync_batch_norm=False): on %d "
                    "devices, after %d, the run is not the one that it was.",
                    *(now, before),
                )
        return state, found.step

    def loop(self, stop: Stop) -> bool:
        """Steps until the last one, or until asked to stop."""
        config, total = self.config, self.experiment.num_steps
        state, key = self.state, jax.random.key(config.seed)
        agree = processes.Agreement()
        progress = terminal.Progress("training", total, "step", start=self.start, warmup=2)
        with progress:
            done = self.start
            while done < total:
                self.saver.poll()
                count = self._until_event(done)
                state, metrics = self.step_fn(state, self.feed(done, count), key)
                done, note, stopping = done + count, "", agree(stop.asked)
                self.log.add(done, metrics, count)
                validate, save = self._validates_at(done), stopping or self._saves_at(done)
                if self.log.num_pending >= config.log_every or validate or save:
                    note = self._flush(done)
                progress.update(done, note)
                if validate:
                    with progress.doing("validating"):
                        self._validate(state, done)
                if validate or save:
                    self._save(self.last, state, config.keep_checkpoints, {})
                if estimate := progress.clock.estimate(done):
                    logger.info(
                        "About %s of training left, plus validations and the evaluation.", estimate
                    )
                if stopping and done < total:
                    self.saver.wait()
                    logger.info("Stopped by a signal at step %d of %d, saved.", done, total)
                    return False
        if not len(self.validator.split.labels):
            for suffix in weights_of(state):
                self._save(self.folders / f"best{suffix}", state, 1, {"score": -1.0})
        self.saver.wait()
        return True

    def kept(self) -> str:
        """One sentence on what a user still has."""
        if not processes.is_first():
            return ""
        self.saver.close()
        found = checkpoint.newest(self.last)
        where = f"The checkpoint of step {found.step} is kept in {found.path}." if found else ""
        return where or "No checkpoint had been written."

    def _until_event(self, step: int) -> int:
        """How many steps go in one call: none between them is followed by anything else."""
        most = min(self.feed.steps_per_call, self.config.log_every - self.log.num_pending)
        for count in range(1, most):
            if self._validates_at(step + count) or self._saves_at(step + count):
                return count
        return most

    def _saves_at(self, step: int) -> bool:
        return step == self.experiment.num_steps or step % self.config.save_every == 0

    def _epoch(self, step: int) -> float:
        return step * self.config.batch_size / len(self.split.labels)

    def _validates_at(self, step: int) -> bool:
        """At the first step of every few epochs, and at the end."""
        if not len(self.validator.split.labels):
            return False
        every = self.config.validation.every_epochs
        clock = data.Clock(len(self.split.labels), self.config.batch_size)
        epoch = clock.epoch_of(step)
        begins = step == clock.steps_until(epoch)
        return step == self.experiment.num_steps or (begins and epoch % every == 0)

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
            best = self.folders / f"best{suffix}"
            found = processes.from_first(functools.partial(self._newest, best))
            if found is None or total > found.meta["score"]:
                self._save(best, state, 1, {"score": total, **scores})
        mask = self.log.latest.get("mask", 1.0)  # Over the steps of the last line of the log.
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
                self.saver.wait()  # The others learn what goes wrong only now.

        try:
            processes.from_first(save)
        except NonFiniteLoss:
            self.log.write(int(state.step), {"parameters": math.nan, **meta})
            raise
        self.log.restart_clock()
