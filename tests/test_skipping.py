"""Steps that are not finite: left out by all devices alike, counted, and too many of them stop."""

import dataclasses
import logging
import os
import signal

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_runs
from jax import lax

from cat_jax.errors import UsageError
from cat_jax.experiment import settings
from cat_jax.report import page
from cat_jax.step.skipping import skip_non_finite
from cat_jax.step.state import NetworkState, TrainState
from cat_jax.step.train_step import pmap_step
from cat_jax.storage import checkpoint, files, metrics
from cat_jax.storage.run_folder import RunFolder
from cat_jax.training import loop
from cat_jax.types import DEVICES

BAD = (3, 4, 8)  # Steps, from 0.


def step_that_is_bad_at(*bad):
    """A training step that adds the mean of its batch's labels, NaN at some steps."""

    def step(state, batch, key):
        wrong = jnp.any(state.step == np.array(bad))
        mean = lax.pmean(jnp.mean(batch["label"].astype(jnp.float32)), DEVICES)
        change = jnp.where(wrong, jnp.nan, mean)
        params = jax.tree.map(lambda leaf: leaf + change, state.classifier.params)
        state = state.replace(
            step=state.step + 1, classifier=state.classifier.replace(params=params)
        )
        return state, {"classifier_loss": mean, "mask_loss": mean, "mask": change}

    return step


@pytest.fixture(scope="module")
def made():
    return small_runs.experiment(small_runs.config(num_validation=0))


def run(made, workdir, step_fn):
    experiment, dataset, devices = made
    experiment = dataclasses.replace(experiment, step_fn=pmap_step(step_fn, devices))
    done = loop.train(experiment, dataset, RunFolder(workdir), devices)
    found = checkpoint.newest(workdir / "checkpoints" / "last")
    return done, checkpoint.restore(found, jax.eval_shape(experiment.init))


def test_one_bad_device_makes_all_of_them_skip():
    """Its loss is averaged, and so is what it has made of the state: none can go its own way."""
    labels = jnp.arange(8.0).reshape(4, 2)
    step = pmap_step(skip_non_finite(step_that_is_bad_at(-1)), jax.local_devices())
    for bad, change in ((False, 3.5), (True, 0.0)):
        state = TrainState(
            jnp.int32(5), NetworkState(jnp.ones(3), {}, {}), NetworkState({}, {}, {})
        )
        batch = {"label": labels.at[2, 1].set(jnp.inf) if bad else labels}
        state, metrics = step(state, batch, jax.random.key(0))
        assert state.step == 6 and metrics["skipped"] == float(bad)
        np.testing.assert_array_equal(state.classifier.params, np.full(3, 1 + change))
        for shard in state.classifier.params.addressable_shards:
            np.testing.assert_array_equal(shard.data, state.classifier.params)


@pytest.mark.slow
def test_skipped_steps_change_nothing_and_are_counted_also_across_a_resume(
    made, tmp_path, monkeypatch, caplog
):
    step = skip_non_finite(step_that_is_bad_at(*BAD))
    with caplog.at_level(logging.WARNING, "cat_jax"):
        done, whole = run(made, tmp_path / "whole", step)
    assert done and whole.step == 12
    assert [text.split(":")[0] for text in caplog.messages] == [
        f"Step {number} is skipped" for number in (4, 5, 9)
    ]
    lines = small_runs.metrics(tmp_path / "whole")
    assert [(line["step"], line["skipped"]) for line in lines] == [
        (4, 1),
        (5, 1),
        (9, 1),
        (10, 0),
        (12, 0),
    ]
    assert ["mask" in line for line in lines] == [True, False, True, True, True]
    with monkeypatch.context() as patch:
        small_runs.act_at(patch, 6, lambda metrics: os.kill(os.getpid(), signal.SIGTERM))
        assert not run(made, tmp_path / "stopped", step)[0]
    chex.assert_trees_all_equal(run(made, tmp_path / "stopped", step)[1], whole)


def test_without_a_skip_the_same_run_stops_at_the_first(made, tmp_path):
    with pytest.raises(UsageError, match=r"mask is nan at step 4\. No checkpoint"):
        run(made, tmp_path, step_that_is_bad_at(*BAD))


def test_ten_in_a_row_stop_the_run(made, tmp_path):
    with pytest.raises(UsageError, match=r"10 steps in a row were skipped, up to step 11"):
        run(made, tmp_path, skip_non_finite(step_that_is_bad_at(*range(1, 12))))
    assert metrics.MAX_SKIPPED == 10


def test_the_page_says_how_many(tmp_path):
    config = settings.as_dict(settings.resolve(small_runs.config()))
    RunFolder(tmp_path).write_config(config, {}, "data")
    lines = [{"step": 4, "skipped": 1.0}, {"step": 8, "skipped": 2.0}, {"step": 8}]
    files.write_json_lines(tmp_path / "metrics.jsonl", lines)
    assert "3 steps were skipped" in page.write_page(tmp_path).read_text()
