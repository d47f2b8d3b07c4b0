"""Checkpoints: what is saved comes back, and nothing damaged is ever used."""

import logging
import resource
import signal

import chex
import jax
import jax.numpy as jnp
import pytest
import small_runs
from orbax.checkpoint import multihost

from cat_jax.errors import UsageError
from cat_jax.storage import checkpoint

MASK = {"mask_net.name": "SmallMask"}  # Larger than the limit of a file below.


@pytest.fixture(scope="module")
def made():
    return small_runs.experiment(small_runs.config(**MASK))[0]


@pytest.fixture(scope="module")
def state(made):
    return made.init()


@pytest.fixture
def folder(tmp_path, state):
    """Checkpoints of steps 5 and 10."""
    for step in (5, 10):
        checkpoint.save(tmp_path, at(state, step), {"epoch": step / 2}, keep=2)
    return tmp_path


def at(state, step):
    return state.replace(step=jnp.int32(step))


def test_what_is_saved_comes_back_with_what_is_to_be_remembered(folder, state):
    found = checkpoint.newest(folder)
    assert (found.step, found.meta) == (10, {"epoch": 5.0})
    chex.assert_trees_all_equal(
        checkpoint.restore(found, jax.eval_shape(lambda: state)), at(state, 10)
    )


def test_a_relative_folder_serves_too(folder, state, monkeypatch):
    monkeypatch.chdir(folder.parent)
    relative = folder.relative_to(folder.parent)
    checkpoint.save(relative, at(state, 15), {}, keep=2)
    found = checkpoint.newest(relative)
    assert checkpoint.restore(found, jax.eval_shape(lambda: state)).step == 15


def test_one_of_several_processes_restores_without_the_others(folder, state, monkeypatch):
    waits_for = []
    monkeypatch.setattr(
        multihost, "sync_global_processes", lambda *_, processes, **__: waits_for.append(processes)
    )
    found = checkpoint.newest(folder)
    checkpoint.restore(found, jax.eval_shape(lambda: state))
    arrays = checkpoint.restore_arrays(found)
    chex.assert_trees_all_equal(arrays["classifier"]["params"], state.classifier.params)
    assert waits_for and all(processes == {0} for processes in waits_for)


def test_only_the_newest_are_kept(folder, state):
    checkpoint.save(folder, at(state, 15), {}, keep=2)
    assert sorted(path.name for path in folder.iterdir()) == ["00000010", "00000015"]


def test_an_intact_checkpoint_of_the_same_step_stays_only_if_nothing_differs(folder, state):
    """A user may delete last/ but not best/, and train again."""

    def save(step, score, factor=1.0):
        params = jax.tree.map(lambda leaf: leaf * factor, state.classifier.params)
        classifier = state.classifier.replace(params=params)
        changed = at(state, step).replace(classifier=classifier)
        path = checkpoint.save(folder, changed, score, keep=1)
        assert [other.name for other in folder.iterdir()] == [path.name]
        return checkpoint.newest(folder)

    first = save(10, {"score": 0.5})
    assert save(10, {"score": 0.5, "num_devices": 4}) == first
    second = save(10, {"score": 0.6})
    assert second.meta == {"score": 0.6}
    third = save(10, {"score": 0.6}, factor=2.0)
    kernels = checkpoint.restore_arrays(third)["classifier"]["params"]
    chex.assert_trees_all_equal(kernels, jax.tree.map(lambda x: 2 * x, state.classifier.params))
    assert save(5, {"score": 0.7}).step == 5


def test_an_empty_folder_holds_none(tmp_path):
    assert checkpoint.newest(tmp_path) is None
    assert checkpoint.newest(tmp_path / "absent") is None


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("harm", [truncate, flip, lambda path: path.unlink()])
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_it_used(folder, harm, caplog):
    sizes = {
        path.stat().st_size: path for path in (folder / "00000010").rglob("*") if path.is_file()
    }
    harm(sizes[max(sizes)])
    with caplog.at_level(logging.WARNING, "cat_jax"):
        assert checkpoint.newest(folder).step == 5
    assert "00000010 is damaged" in caplog.text and "step 5" in caplog.text
    assert (folder / "damaged-00000010").exists(), "nothing is deleted"


def test_an_unfinished_checkpoint_is_not_used(folder):
    (folder / "00000010" / "manifest.json").unlink()
    assert checkpoint.newest(folder).step == 5


def test_where_all_are_damaged_nothing_starts_anew_silently(folder):
    for step in (5, 10):
        (folder / f"{step:08d}" / "manifest.json").write_text("{")
    with pytest.raises(UsageError, match=r"None of the checkpoints in .* is intact"):
        checkpoint.newest(folder)


def test_a_checkpoint_of_another_network_is_refused_by_the_first_difference(folder):
    other = small_runs.experiment(small_runs.config(**MASK, **{"mask_net.sees": "pair"}))[0]
    with pytest.raises(
        UsageError, match=r"mask_net/.*conv1/kernel is float32\[3, 3, 3, 64\] there"
    ):
        checkpoint.restore(checkpoint.newest(folder), jax.eval_shape(other.init))


def test_weights_that_are_not_finite_are_not_saved(folder, state):
    broken = jax.tree.map(lambda leaf: leaf * jnp.nan, state.classifier)
    with pytest.raises(ValueError, match=r"is not finite after step 15"):
        checkpoint.save(folder, at(state.replace(classifier=broken), 15), {}, keep=2)
    assert checkpoint.newest(folder).step == 10


def test_what_does_not_fit_on_the_disk_is_not_begun(folder, state, monkeypatch):
    usage = checkpoint.shutil.disk_usage(folder)._replace(free=1000)
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError, match=r"no space left for a checkpoint of \d+ MB \(0 MB free\)"):
        checkpoint.save(folder, at(state, 15), {}, keep=2)
    assert sorted(path.name for path in folder.iterdir()) == ["00000005", "00000010"]


# orbax's writer threads report to an event loop that the failure has closed already.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_full_disk_costs_nothing_that_was_there(folder, state):
    """A limit on the size of files makes writes fail as a full disk does, with an OSError."""
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError, match=r"00000015"):
            checkpoint.save(folder, at(state, 15), {}, keep=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert checkpoint.newest(folder).step == 10
    checkpoint.save(folder, at(state, 15), {}, keep=2)
    assert sorted(path.name for path in folder.iterdir()) == ["00000010", "00000015"]
