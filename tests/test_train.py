"""The loop: stopped and resumed equals uninterrupted, and what goes wrong is said."""

import dataclasses
import functools
import itertools
import logging
import os
import re
import shutil
import signal
import time

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_runs
import tiny_networks
from compilations import compiled_names

from cat_jax import data
from cat_jax.errors import UsageError
from cat_jax.report.times import Times
from cat_jax.runtime import activities
from cat_jax.storage import checkpoint, files
from cat_jax.storage.lines import first_non_finite
from cat_jax.storage.metrics import MetricsLog
from cat_jax.storage.run_folder import RunFolder
from cat_jax.storage.saving import Saver
from cat_jax.training import loop
from cat_jax.training.average_norm import AverageNorm
from cat_jax.training.timetable import Interval

PLAIN = {"method.name": "standard", "mask_net.name": "OnesMask"}
# Fields that the loop reads; of awp.gamma, only the advice that an error gives.
OF_THE_LOOP = {"num_steps", "log_every", "validation.every_epochs", "awp.gamma"}
OF_THE_LOOP |= {"save_minutes", "recheck_every"}


@functools.cache
def compiled(*overrides):
    """The experiment whose step serves all runs that differ in fields of the loop alone."""
    return small_runs.experiment(small_runs.config(**dict(overrides)))[0]


def run(workdir, change_step=lambda step_fn: step_fn, **overrides):
    """Trains a small run of tiny networks; returns (finished?, state in last/)."""
    experiment, dataset, devices = small_runs.experiment(small_runs.config(**overrides))
    of_the_step = (item for item in overrides.items() if item[0] not in OF_THE_LOOP)
    shared = compiled(*sorted(of_the_step))
    step_fn = change_step(shared.step_fn)
    experiment = dataclasses.replace(experiment, init=shared.init, step_fn=step_fn)
    finished = loop.train(experiment, dataset, RunFolder(workdir), devices)
    newest = checkpoint.newest(workdir / "checkpoints" / "last")
    return finished, checkpoint.restore(newest, jax.eval_shape(experiment.init))


def times_of(workdir):
    return Times.of_lines(files.read_json_lines(workdir / "metrics.jsonl"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(workdir, state) of an uninterrupted run."""
    workdir = tmp_path_factory.mktemp("whole")
    return workdir, run(workdir)[1]


def test_a_run_leaves_metrics_both_checkpoints_and_tensorboard(whole):
    workdir, state = whole
    assert state.step == 12
    assert {p.name for p in (workdir / "checkpoints").iterdir()} == {"best", "last"}
    assert list((workdir / "tensorboard").glob("events*"))
    lines = small_runs.metrics(workdir)
    assert [line["step"] for line in lines] == [4, 5, 9, 10, 12, 12]
    assert all(0 < line["mask"] < 1 for line in lines if "mask" in line)
    assert 0 <= lines[-1]["validation_robust"] <= lines[-1]["validation_natural"] <= 1


@pytest.fixture
def clock_that_goes_back(monkeypatch):
    """The time of day is a minute earlier each time that it is asked for."""
    minutes = itertools.count(30_000_000, -1)
    monkeypatch.setattr(time, "time", lambda: 60.0 * next(minutes))
    monkeypatch.setattr(time, "time_ns", lambda: 60_000_000_000 * next(minutes))


@pytest.mark.usefixtures("clock_that_goes_back")
def test_sigterm_saves_and_the_resumed_run_equals_the_uninterrupted_one(
    whole, tmp_path, monkeypatch, caplog
):
    """Also where the clock is set back again and again: nothing goes by the time of day."""
    with monkeypatch.context() as patch, caplog.at_level(logging.INFO, "cat_jax"):
        small_runs.act_at(patch, 7, lambda metrics: os.kill(os.getpid(), signal.SIGTERM))
        finished, state = run(tmp_path)
    assert not finished and state.step == 8 and "Stopped by a signal at step 8" in caplog.text
    finished, state = run(tmp_path)
    assert finished
    chex.assert_trees_all_equal(state, whole[1])
    lines = files.read_json_lines(tmp_path / "metrics.jsonl")
    assert all(line.get("images_per_second", 1) > 0 for line in lines)


def test_a_run_saves_by_time_too_and_resumes_from_there(whole, tmp_path, monkeypatch):
    """A step takes a second by the clock of `Interval`, and save_minutes is two seconds."""
    seconds = itertools.count()
    monkeypatch.setattr(loop, "Interval", lambda minutes: Interval(minutes, lambda: next(seconds)))
    saved = []
    save = Saver.save

    def recorded(self, folder, state, *arguments, **named):
        saved.append((folder.name, int(state.step)))
        if saved[-1] == ("last", 7):
            raise KeyboardInterrupt
        save(self, folder, state, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Saver, "save", recorded)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, save_minutes=2 / 60)
    assert saved == [("last", 2), ("last", 4), ("last", 5), ("last", 7)], "5 is by save_every"
    _, state = run(tmp_path)
    chex.assert_trees_all_equal(state, whole[1])
    times = times_of(tmp_path)
    assert times.lost_steps == 2 and times.seconds["lost"] > 0


def test_steps_that_are_computed_twice_change_nothing(whole, tmp_path):
    calls = []

    def counted(step_fn):
        def step(state, batch, key):
            calls.append(int(state.step))
            return step_fn(state, batch, key)

        return step

    _, state = run(tmp_path, change_step=counted, recheck_every=5)
    chex.assert_trees_all_equal(state, whole[1])
    assert calls == sorted([*range(12), 4, 9])


def test_the_parts_of_the_time_add_up_to_all_of_it(tmp_path, monkeypatch, caplog):
    """A second of waiting for data is a slow step, and is named."""
    feed = data.Feed.__call__

    def slow(self, step, count=1):
        time.sleep(1.2 if step == 30 else 0)
        return feed(self, step, count)

    monkeypatch.setattr(data.Feed, "__call__", slow)
    close, ended = MetricsLog.close, []
    monkeypatch.setattr(
        MetricsLog, "close", lambda self: (ended.append(time.monotonic()), close(self))
    )
    activities.PROCESS.take()
    started = time.monotonic()
    with caplog.at_level(logging.WARNING, "cat_jax"):
        run(tmp_path, num_steps=40, **PLAIN)
    times, wall = times_of(tmp_path), ended[0] - started
    assert sum(times.seconds.values()) == pytest.approx(wall, rel=0.02)
    parts = {"compiling", "stepping", "waiting for data", "validating", "saving", "restoring"}
    assert parts <= times.seconds.keys() and times.seconds["waiting for data"] > 1.2
    assert times.slow_steps >= 1 and times.lost_steps == 0
    assert re.search(r"slowest was step 31: 1\.\d* s instead of .* waiting for data", caplog.text)


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_step(tmp_path, monkeypatch):
    small_runs.act_at(
        monkeypatch, 7, lambda metrics: metrics | {"classifier_loss": jnp.float32("nan")}
    )
    remedy = "Try a smaller learning rate or config.awp.gamma"
    message = f"classifier_loss is nan at step 7.* step 5 is kept.*{remedy}"
    with pytest.raises(UsageError, match=message):
        run(tmp_path, **{"awp.gamma": 0.01})
    lines = small_runs.metrics(tmp_path)
    assert [line["step"] for line in lines] == [4, 5, 7]
    assert first_non_finite(lines) == "classifier_loss is nan at step 7"


def test_parameters_that_are_not_finite_stop_the_run_as_a_loss_does(tmp_path):
    """Where every loss was finite: the last update was not."""

    def broken_by(step_fn):
        def step(state, batch, key):
            state, metrics = step_fn(state, batch, key)
            broken = jax.tree.map(lambda leaf: leaf * jnp.nan, state.classifier)
            return (state.replace(classifier=broken) if state.step == 5 else state), metrics

        return step

    with pytest.raises(UsageError, match="is not finite after step 5"):
        run(tmp_path, change_step=broken_by)
    lines = small_runs.metrics(tmp_path)
    assert first_non_finite(lines) == "parameters is nan at step 5"


def test_a_disk_that_fills_up_stops_the_run_and_says_how_to_go_on(whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:

        def full(*args, **kwargs):
            raise OSError(28, "No space left on device")

        def fill(metrics):
            while checkpoint.newest(tmp_path / "checkpoints" / "last") is None:
                time.sleep(0.01)  # Until step 5 is written.
            patch.setattr(files, "write_text", full)

        small_runs.act_at(patch, 7, fill)
        with pytest.raises(
            UsageError, match=r"No space left.* step 5 is kept.*Free disk space.*to resume"
        ):
            run(tmp_path)
    chex.assert_trees_all_equal(run(tmp_path)[1], whole[1])
    assert small_runs.metrics(tmp_path) == small_runs.metrics(whole[0])


def test_a_truncated_checkpoint_costs_the_steps_since_the_one_before_it(whole, tmp_path, caplog):
    run(tmp_path, num_steps=10)
    largest = max(
        (tmp_path / "checkpoints" / "last" / "00000010").rglob("*"),
        key=lambda path: path.stat().st_size if path.is_file() else 0,
    )
    os.truncate(largest, 100)
    with caplog.at_level(logging.INFO, "cat_jax"):
        _, state = run(tmp_path)
    assert "Resuming from the checkpoint of step 5" in caplog.text
    chex.assert_trees_all_equal(state, whole[1])


def test_a_run_without_validation_keeps_its_last_state_as_the_best(tmp_path, monkeypatch, caplog):
    """Also where the signal to stop comes in the last step."""
    small_runs.act_at(monkeypatch, 2, lambda metrics: os.kill(os.getpid(), signal.SIGTERM))
    finished, _ = run(tmp_path, num_validation=0, num_steps=3, **PLAIN)
    assert finished
    best, last = (small_runs.manifest(tmp_path, which) for which in ("best", "last"))
    assert best["step"] == last["step"] == 3
    assert best["arrays"] == last["arrays"]
    shutil.rmtree(tmp_path / "checkpoints" / "last")
    with caplog.at_level(logging.WARNING, "cat_jax"):
        run(tmp_path, num_validation=0, num_steps=3, **PLAIN)
    assert "checkpoints/best has a checkpoint of step 3, which stays until" in caplog.text


@pytest.mark.slow
def test_a_collapsed_mask_is_warned_of(tmp_path, monkeypatch, caplog):
    small_runs.act_at(monkeypatch, 3, lambda metrics: metrics | {"mask": jnp.float32(0.01)})
    with caplog.at_level(logging.WARNING, "cat_jax"):
        run(tmp_path, num_steps=3, log_every=1)
    assert "The mean of the mask M is 0.010" in caplog.text and "beta1" in caplog.text


@pytest.mark.slow
def test_a_run_that_does_not_learn_is_warned_of_also_across_a_resume(tmp_path, caplog):
    frozen = {"optimizer.learning_rate": 0.0, "validation.every_epochs": 1, "num_validation": 16}
    frozen |= PLAIN | {"method.name": "at", "batch_size": 80}
    frozen |= {"classifier.name": tiny_networks.BIASED}
    with caplog.at_level(logging.WARNING, "cat_jax"):
        run(tmp_path, num_steps=6, **frozen)  # Two epochs of 3 steps.
        before = caplog.text
        run(tmp_path, num_steps=9, **frozen)
    warning = "The classifier predicts one class for every image"
    assert warning in before and warning in caplog.text.removeprefix(before)


@pytest.mark.slow
@pytest.mark.parametrize("kind, batch_norm", [("moving", "averaged"), ("equal", "recomputed")])
def test_an_average_is_validated_kept_and_resumed_beside_the_classifier(
    tmp_path, monkeypatch, kind, batch_norm
):
    average = {"average.kind": kind, "average.decay": 0.5, "average.batch_norm": batch_norm}
    settings = average | {"validation.every_epochs": 1, "num_steps": 30}
    with monkeypatch.context() as patch:
        small_runs.act_at(patch, 20, lambda metrics: os.kill(os.getpid(), signal.SIGTERM))
        run(tmp_path, **settings)
    _, state = run(tmp_path, **settings)
    _, whole = run(tmp_path / "whole", **settings)
    chex.assert_trees_all_equal(state, whole)
    assert {p.name for p in (tmp_path / "checkpoints").iterdir()} == {
        *("best", "last", "best_average")
    }
    lines = [line for line in small_runs.metrics(tmp_path) if "validation_robust" in line]
    scores = [
        line["validation_natural_average"] + line["validation_robust_average"] for line in lines
    ]
    assert small_runs.manifest(tmp_path, "best_average")["meta"]["score"] == max(scores)
    raw = state.classifier.params["Dense_0"]["bias"]
    assert 0 < np.abs(raw - state.average["params"]["Dense_0"]["bias"]).max()
    again = recomputed(state, **settings)
    same = jax.tree.map(np.array_equal, state.average["batch_stats"], again)
    assert all(jax.tree.leaves(same)) == (batch_norm == "recomputed")


def recomputed(state, **overrides):
    """The statistics of the average of a run's state over its training images."""
    experiment, dataset, devices = small_runs.experiment(small_runs.config(**overrides))
    config = experiment.config
    split, _ = data.split_validation(dataset.train, config.num_validation, config.seed)
    feed = data.Feed(split, config.seed, config.batch_size, 1, [0])
    parts = (experiment.phases.classifier, experiment.augment, feed, jax.random.key(config.seed))
    return AverageNorm(*parts, devices)(state).average["batch_stats"]


@pytest.mark.slow
def test_the_loss_falls_and_the_best_checkpoint_has_the_best_score(tmp_path):
    run(tmp_path, num_steps=60, **{"validation.every_epochs": 1})
    lines = small_runs.metrics(tmp_path)
    losses = [line["classifier_loss"] for line in lines if "classifier_loss" in line]
    assert losses[-1] < 0.7 * losses[0]
    scores = {
        line["step"]: line["validation_natural"] + line["validation_robust"]
        for line in lines
        if "validation_natural" in line
    }
    best = small_runs.manifest(tmp_path, "best")
    assert best["meta"]["score"] == max(scores.values()) == scores[best["step"]]


@pytest.mark.slow
@pytest.mark.parametrize("method", [PLAIN, {}])
def test_several_steps_in_one_call_are_the_same_steps(tmp_path, method):
    _, state = run(tmp_path / "apart", **method)
    finished, together = run(tmp_path / "together", steps_per_dispatch=3, **method)
    assert finished
    chex.assert_trees_all_close(together, state, rtol=1e-5, atol=1e-6)
    apart, lines = (small_runs.metrics(tmp_path / name) for name in ("apart", "together"))
    assert [line["step"] for line in lines] == [line["step"] for line in apart]
    for one, other in zip(apart, lines, strict=True):
        assert one == pytest.approx(other, rel=1e-4)


@pytest.mark.parametrize(
    "overrides, steps",
    [({}, 4), ({"log_every": 100, "save_every": 6}, 6), ({"log_every": 50, "save_every": 90}, 12)],
)
def test_a_call_takes_no_more_batches_than_it_can_have_steps(overrides, steps):
    made, dataset, _ = small_runs.experiment(
        small_runs.config(steps_per_dispatch=10**6, **overrides)
    )
    assert made.steps_per_call == steps
    feed = data.Feed(dataset.train, 0, 16, 1, [0], made.steps_per_call)
    assert feed(0, 3)["image"].shape == (1, steps, 16, 8, 8, 3)


def test_the_step_compiles_once_through_epochs_and_validations(tmp_path):
    made, dataset, devices = small_runs.experiment(
        small_runs.quick_config(num_steps=100, num_validation=30, log_every=50, save_every=50)
    )
    made.config.test.batch_size = 16  # Of the 30 images of a validation, 14 are a short batch.
    made.config.validation.every_epochs = 3
    with compiled_names() as names:
        assert loop.train(made, dataset, RunFolder(tmp_path), devices)
    assert names.count("jit(_fun)") == 1, names  # As `jax.pmap` calls what it maps.
    lines = small_runs.metrics(tmp_path)
    assert lines[-1]["epoch"] > 7 and sum("validation_natural" in line for line in lines) > 2
