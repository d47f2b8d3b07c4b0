"""Saved by a thread: as it was when it was asked for, one at a time, and failures are told."""

import ctypes
import pathlib
import threading

import jax.numpy as jnp
import numpy as np
import pytest

from cat_jax.errors import NonFiniteLoss
from cat_jax.step.state import NetworkState, TrainState
from cat_jax.storage import checkpoint
from cat_jax.storage.saving import Saver


@pytest.fixture
def saver():
    made = Saver()
    yield made
    made.close()


def state_at(step, value):
    empty = NetworkState({}, {}, {})
    return TrainState(jnp.int32(step), empty.replace(params=jnp.full(1000, value)), empty)


def overwrite(state):
    """What donation to the next step does to the memory of a state."""
    ctypes.memset(state.classifier.params.unsafe_buffer_pointer(), 0, 4000)


def test_what_is_written_is_the_state_when_it_was_saved(saver, tmp_path, monkeypatch):
    """The thread begins when the memory has another content already."""
    go, save = threading.Event(), checkpoint.save
    monkeypatch.setattr(checkpoint, "save", lambda *a, **k: go.wait(60) and save(*a, **k))
    state = state_at(5, 2.0)
    saver.save(tmp_path, state, {"score": 1.0}, keep=2)
    assert checkpoint.newest(tmp_path) is None, "it is not waited for"
    overwrite(state)
    go.set()
    saver.wait()
    found = checkpoint.newest(tmp_path)
    assert (found.step, found.meta) == (5, {"score": 1.0})
    kept = checkpoint.restore(found, state)
    np.testing.assert_array_equal(kept.classifier.params, np.full(1000, 2.0))


def test_one_is_written_at_a_time_and_in_order(saver, tmp_path, monkeypatch):
    begun, ended = [], []

    def save(folder, state, meta, keep):
        begun.append(int(state.step))
        assert begun == [*ended, int(state.step)]
        ended.append(int(state.step))
        return folder

    monkeypatch.setattr(checkpoint, "save", save)
    for step in range(5):
        saver.save(tmp_path, state_at(step, 0.0), {}, keep=2)
    saver.wait()
    assert ended == [0, 1, 2, 3, 4]


def test_a_failure_is_raised_by_the_next_call_once(saver, tmp_path, monkeypatch):
    def save(*args: pathlib.Path, keep: int):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save)
        saver.save(tmp_path, state_at(1, 0.0), {}, keep=2)
        with pytest.raises(OSError, match="No space left"):
            saver.save(tmp_path, state_at(2, 0.0), {}, keep=2)
    saver.poll()


def test_a_state_that_is_not_finite_is_refused_at_once(saver, tmp_path):
    with pytest.raises(NonFiniteLoss, match=r"is not finite after step 3"):
        saver.save(tmp_path, state_at(3, np.nan), {}, keep=2)
    saver.wait()
    assert checkpoint.newest(tmp_path) is None
