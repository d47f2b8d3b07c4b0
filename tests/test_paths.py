"""Paths that a user gives: ~, addresses, folders inside a run; and whose fault an OSError is."""

import errno
import pathlib

import jax
import pytest

from cat_jax.errors import UsageError
from cat_jax.runtime import processes
from cat_jax.storage import disk_errors, paths, run_folder
from cat_jax.storage.run_folder import RunFolder


def test_a_tilde_is_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.local_path("~/x", "--out") == tmp_path / "x"
    assert paths.local_path(pathlib.Path("a/~/b"), "--out") == pathlib.Path("a/~/b")
    with pytest.raises(UsageError, match="--out is ~nobody-here/x, but there is no such user"):
        paths.local_path("~nobody-here/x", "--out")


@pytest.mark.parametrize("text", ["gs://bucket/x", "file:///x", pathlib.Path("s3://bucket/x")])
def test_addresses_are_refused(text):
    with pytest.raises(
        UsageError, match=r"--workdir is .*; expected a path on this machine.*Mount"
    ):
        run_folder.named(text)


@pytest.mark.parametrize("inside", ["checkpoints", "checkpoints/best", "evaluation"])
def test_a_folder_inside_a_run_is_answered_with_the_run(monkeypatch, tmp_path, inside):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "r" / inside).mkdir(parents=True)
    (tmp_path / "runs" / "r" / "config.json").touch()
    with pytest.raises(UsageError, match=r"inside the run runs/r; name the run: --workdir=runs/r$"):
        run_folder.named(f"runs/r/{inside}")
    monkeypatch.chdir(tmp_path / "runs" / "r")
    with pytest.raises(UsageError, match=rf"name the run: --workdir={tmp_path}/runs/r$"):
        run_folder.named(tmp_path / "runs" / "r" / inside)
    with pytest.raises(UsageError, match=r"name the run: --workdir=.$"):
        run_folder.named(inside)
    for other in ("runs/r", "runs/r/of_weights", "checkpoints", "runs"):
        assert run_folder.named(tmp_path / other).path == tmp_path / other


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "error, is_of_it",
    [
        (FULL, True),
        (OSError(errno.EACCES, "Permission denied", "run/metrics.jsonl"), True),
        (FileNotFoundError(errno.ENOENT, "No such file", "run/a", None, "run/b"), True),
        (FileNotFoundError(errno.ENOENT, "No such file", "/usr/share/fonts/x.ttf"), False),
        (OSError(errno.ENOSPC, "No space left on device", "/elsewhere/x"), False),
        (TimeoutError("timed out"), False),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), False),
    ],
)
def test_only_errors_of_the_folder_and_of_the_disk_are_its_own(error, is_of_it):
    kind = UsageError if is_of_it else type(error)
    with pytest.raises(kind) as caught, explained(lambda: "Step 3 is saved."):
        raise error
    if is_of_it:
        text = f"run cannot be written or read: {error}. Step 3 is saved. Free disk space or fix"
        assert str(caught.value).startswith(text)


def test_other_processes_tell_an_error_of_process_0_from_one_of_their_own(monkeypatch):
    """They write in a folder of their own: their full disk is not that of the run."""
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    with pytest.raises(OSError, match="No space left") as caught, explained():
        raise FULL
    assert caught.value is FULL
    of_first = PermissionError(errno.EACCES, "Permission denied", "run/metrics.jsonl")
    of_first.add_note(processes.FROM_FIRST)
    with pytest.raises(UsageError, match=r"^Process 0 stopped: .*denied: 'run/metrics.jsonl'.$"):
        with explained():
            raise of_first


def explained(*remark):
    return disk_errors.explained(RunFolder(pathlib.Path("run")), *remark)
