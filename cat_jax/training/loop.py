"""The training loop: steps, validations, checkpoints, and resuming from them."""

import contextlib
import functools
import logging
import math
import pathlib
from typing import Any

import jax

from cat_jax import data
from cat_jax.errors import NonFiniteLoss, UsageError
from cat_jax.experiment import settings
from cat_jax.experiment.experiment import Experiment
from cat_jax.runtime import activities, processes, terminal
from cat_jax.runtime.signals import Stop, stop_on_signal
from cat_jax.step.state import TrainState, weights_of
from cat_jax.step.train_step import Batch, Metrics
from cat_jax.storage import checkpoint, disk_errors, trackers
from cat_jax.storage.metrics import MetricsLog
from cat_jax.storage.run_folder import RunFolder
from cat_jax.storage.saving import Saver
from cat_jax.training import restoring, validation
from cat_jax.training.average_norm import AverageNorm
from cat_jax.training.goodput import COMPILING, DATA, STEPPING, Goodput
from cat_jax.training.second_run import compute_twice
from cat_jax.training.timetable import Interval, Timetable
from cat_jax.training.trace import Trace
from cat_jax.training.validation import Validator, describe

logger = logging.getLogger(__name__)


def train(
    experiment: Experiment,
    dataset: data.Dataset,
    folder: RunFolder,
    devices: list[jax.Device],
    profile: range = range(0),
) -> bool:
    """Trains to the last step, from the newest checkpoint if there is one.

    Args:
      experiment: experiment of the run, as `build_experiment` returns it.
      dataset: data of the run.
      folder: folder for metrics.jsonl, tensorboard/ and checkpoints/; process 0 alone reads and
        writes checkpoints.
      devices: devices that the experiment was built for.
      profile: steps of which process 0 writes a JAX trace into profile/.

    Returns:
      True when all steps are done; False when a signal stopped the run, with its state saved.

    Raises:
      UsageError: if a loss is not finite, unless the run skips such steps, or the disk is full.
        The checkpoints stay unchanged.
    """
    run = _Run(experiment, dataset, folder, devices, profile)
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


def _extra(experiment: Experiment, dataset: data.Dataset) -> tuple[data.Split | None, int]:
    """The images beside the training split, and their number in a batch.

    Raises:
      UsageError: if they are not those that the run was created with.
    """
    extra, batch_size = experiment.config.extra_data, experiment.config.batch_size
    path, expected = extra.path, extra.fingerprint
    if not path:
        return None, 0
    images, actual = data.extra_images.load(path, dataset.spec), data.extra_images.identity(path)
    if actual != expected:
        raise UsageError(
            f"config.extra_data: the images of {path} changed: their fingerprint was {expected} "
            f"and is {actual}; use another workdir."
        )
    return images, data.extra_images.number(extra.share, batch_size)


class _Run:
    """Data, folders and helpers of one run; only `loop` changes the state."""

    def __init__(
        self,
        experiment: Experiment,
        dataset: data.Dataset,
        folder: RunFolder,
        devices: list[jax.Device],
        profile: range,
    ) -> None:
        config = experiment.config
        self.experiment, self.config, self.devices = experiment, config, devices
        self.step_fn, self.key = experiment.step_fn, jax.random.key(config.seed)
        self.folder, self.last = folder, folder.checkpoint("last")
        self.dataset = dataset
        self.split, held_out = data.split_validation(
            dataset.train, config.num_validation, config.seed
        )
        self.validator = Validator(experiment, dataset, held_out, devices)
        self.feed = data.Feed(
            *(self.split, config.seed, config.batch_size, len(devices)),
            *(processes.places(devices), experiment.steps_per_call, *_extra(experiment, dataset)),
        )
        self.average_norm = None
        if experiment.average is not None and config.average.batch_norm == "recomputed":
            parts = (experiment.phases.classifier, experiment.augment, self.feed, self.key)
            self.average_norm = AverageNorm(*parts, devices)
        self.timetable = Timetable(
            *(experiment.num_steps, len(self.split.labels), config.batch_size, config.save_every),
            config.validation.every_epochs if len(self.validator.split.labels) else 0,
        )
        with activities.doing("restoring"):
            begin = functools.partial(restoring.begin, experiment, folder, len(devices))
            state, self.start = processes.from_first(begin)
            self.state = processes.replicate(state, devices)
        name = config.tracker if processes.is_first() else "none"
        tracker = trackers.start(name, folder.path, settings.as_dict(config))
        self.log = MetricsLog(folder, self.start, tracker)
        self.trace = Trace(folder.path / "profile", profile if processes.is_first() else range(0))
        self.goodput = Goodput(devices[processes.places(devices)[0]])
        self.saver, self.since_saved = Saver(), Interval(config.save_minutes)

    def loop(self, stop: Stop) -> bool:
        """Steps until the last one, or until asked to stop."""
        config, total = self.config, self.experiment.num_steps
        state, step = self.state, self.start
        agree = processes.Agreement()
        progress = terminal.Progress("training", total, "step", start=step, warmup=2)
        with progress:
            while step < total:
                self.saver.poll()
                self.trace.before(step, state)
                count, note = self._steps_in_call(step), ""
                with activities.doing(DATA, activities.STEP):
                    batch = self.feed(step, count)
                with activities.doing(STEPPING, activities.STEP):
                    state, metrics = self._call(state, batch, step, count)
                    step += count
                    # By the clock of process 0 alone.
                    is_due = processes.is_first() and self.since_saved.is_over()
                    stopping, is_due = agree(stop.requested, is_due)
                    self.log.add(step, metrics, count)
                    validate = self.timetable.validates_at(step)
                    save = validate or stopping or is_due or self.timetable.saves_at(step)
                    if self.log.num_pending >= config.log_every or save:
                        note = self._flush(step)
                self.goodput.add(step, count)
                progress.update(step, note)
                if self.average_norm is not None and save:
                    with progress.doing("averaging"), activities.doing("averaging"):
                        state = self.average_norm(state)
                if validate:
                    with progress.doing("validating"), activities.doing("validating"):
                        self._validate(state, step)
                if save:
                    self._save(self.last, state, config.keep_checkpoints, {})
                if estimate := progress.clock.estimate(step):
                    logger.info(
                        "About %s of training left, plus validations and the evaluation.", estimate
                    )
                if stopping and step < total:
                    self._end(step)
                    logger.info("Stopped by a signal at step %d of %d, saved.", step, total)
                    return False
        if not len(self.validator.split.labels):
            for suffix in weights_of(state):
                self._save(self.folder.checkpoint(f"best{suffix}"), state, 1, {"score": -1.0})
        self._end(step)
        return True

    def _call(
        self, state: TrainState, batch: Batch, step: int, count: int
    ) -> tuple[TrainState, Metrics]:
        """Starts a call of `count` steps after `step`, the first of which compiles the step."""
        is_first, every = step == self.start, self.config.recheck_every
        with activities.doing(COMPILING) if is_first else contextlib.nullcontext():
            if every and (step + count) // every > step // every:
                return compute_twice(self.step_fn, state, batch, self.key, step + count)
            return self.step_fn(state, batch, self.key)

    def _end(self, step: int) -> None:
        """Waits for the last checkpoint, and writes how the time since the last line went."""
        self.trace.close()
        with activities.doing("saving"):
            self.saver.wait()
        if step > self.start:
            self.log.write(step, self.goodput.take())

    def describe_saved(self) -> str:
        """One sentence that names the newest checkpoint."""
        if not processes.is_first():
            return ""
        self.saver.close()
        newest = checkpoint.newest(self.last)
        if newest is None:
            return "No checkpoint had been written."
        return f"The checkpoint of step {newest.step} is kept in {newest.path}."

    def _steps_in_call(self, step: int) -> int:
        """Number of steps in one call: up to the next validation, checkpoint or line of the log."""
        max_steps = min(self.feed.steps_per_call, self.config.log_every - self.log.num_pending)
        return self.timetable.steps_in_call(step, max_steps)

    def _flush(self, step: int) -> str:
        """Writes the metrics of the last steps; returns the classifier's loss as a text."""
        rate = float(self.experiment.learning_rate(step - 1))
        means = self.log.flush(
            self.config.batch_size,
            epoch=self.timetable.epoch(step),
            learning_rate=rate,
            **self.goodput.take(),
        )
        return f"loss {means['classifier_loss']:.3g}" if "classifier_loss" in means else ""

    def _validate(self, state: TrainState, step: int) -> None:
        """Measures, logs and writes the scores of a state; keeps the best one in best/.

        The average of the classifier, if there is one, has its own best_average/.
        """
        scores, epoch = self.validator(state), self.timetable.epoch(step)
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
            "epoch": self.timetable.epoch(int(state.step)),
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
            with activities.doing("saving"):
                processes.from_first(save)
        except NonFiniteLoss:
            self.log.write(int(state.step), {"parameters": math.nan, **meta})
            raise
        self.since_saved.restart()
        self.log.restart_clock()
