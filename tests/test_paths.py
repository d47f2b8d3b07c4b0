"""Paths that a user gives: ~, addresses, folders inside a run; and whose fault an OSError is."""

import errno
import pathlib

import pytest

from cat_jax.errors import UsageError
from cat_jax.storage import paths


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
        paths.workdir_path(text)


@pytest.mark.parametrize("inside", ["checkpoints", "checkpoints/best", "evaluation"])
def test_a_folder_inside_a_run_is_answered_with_the_run(monkeypatch, tmp_path, inside):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "r" / inside).mkdir(parents=True)
    (tmp_path / "runs" / "r" / "config.json").touch()
    with pytest.raises(UsageError, match=r"inside the run runs/r; name the run: --workdir=runs/r$"):
        paths.workdir_path(f"runs/r/{inside}")
    monkeypatch.chdir(tmp_path / "runs" / "r")
    with pytest.raises(UsageError, match=rf"name the run: --workdir={tmp_path}/runs/r$"):
        paths.workdir_path(tmp_path / "runs" / "r" / inside)
    with pytest.raises(UsageError, match=r"name the run: --workdir=.$"):
        paths.workdir_path(inside)
    for other in ("runs/r", "runs/r/of_weights", "checkpoints", "runs"):
        assert paths.workdir_path(tmp_path / other) == tmp_path / other


@pytest.mark.parametrize(
    "error, is_of_it",
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EACCES, "Permission denied", "run/metrics.jsonl"), True),
        (FileNotFoundError(errno.ENOENT, "No such file", "run/a", None, "run/b"), True),
        (FileNotFoundError(errno.ENOENT, "No such file", "/usr/share/fonts/x.ttf"), False),
        (OSError(errno.ENOSPC, "No space left on device", "/elsewhere/x"), False),
        (TimeoutError("timed out"), False),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), False),
    ],
)
def test_only_errors_of_the_folder_and_of_the_disk_are_its_own(error, is_of_it):
    assert paths.is_of_folder(error, pathlib.Path("run")) == is_of_it
