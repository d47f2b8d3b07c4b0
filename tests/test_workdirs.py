"""A workdir is one run's at a time, of one config and of one data set."""

import errno
import logging
import os
import signal
import socket
import subprocess
import sys

import pytest

from cat_jax.errors import UsageError
from cat_jax.storage import lock
from cat_jax.storage.run_folder import RunFolder

HOLD = """
import fcntl, os, sys, time
lock = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(lock, fcntl.LOCK_EX)
print(flush=True)
time.sleep(60)
"""


def test_a_second_run_is_refused_by_the_name_of_the_first_and_may_follow_it(tmp_path):
    holder = f"in use by process {os.getpid()} on {socket.gethostname()}"
    with RunFolder(tmp_path / "run").claimed():
        with (
            pytest.raises(UsageError, match=holder) as error,
            RunFolder(tmp_path / "run").claimed(),
        ):
            pass
        with RunFolder(tmp_path / "another").claimed():
            pass
    assert "\n" not in str(error.value)
    with RunFolder(tmp_path / "run").claimed():
        pass
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


def test_a_killed_process_leaves_no_lock(tmp_path):
    (tmp_path / ".lock").touch()
    command = [sys.executable, "-S", "-c", HOLD, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with pytest.raises(UsageError, match="in use by another"), RunFolder(tmp_path).claimed():
            pass
        process.send_signal(signal.SIGKILL)
    with RunFolder(tmp_path).claimed():
        pass


def test_a_file_system_without_locks_is_warned_of(tmp_path, monkeypatch, caplog):
    def flock(*args):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock.fcntl, "flock", flock)
    with caplog.at_level(logging.WARNING, "cat_jax"), RunFolder(tmp_path).claimed():
        pass
    assert "cannot be locked (No locks available)" in caplog.text


def test_a_workdir_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    def write_text(*args):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(lock.files, "write_text", write_text)
    with pytest.raises(UsageError, match=r"Cannot write .*Read-only file system.*--workdir="):
        with RunFolder(tmp_path).claimed():
            pass


def test_other_data_are_refused_by_both_fingerprints(tmp_path):
    RunFolder(tmp_path).refuse_other_data("any")
    RunFolder(tmp_path).write_config({"seed": 0}, {}, 64 * "a")
    assert RunFolder(tmp_path).config() == {"seed": 0}
    RunFolder(tmp_path).refuse_other_data(64 * "a")
    with pytest.raises(UsageError, match=r"aaaaaaaaaaaa there, bbbbbbbbbbbb now; .*data_dir"):
        RunFolder(tmp_path).refuse_other_data(64 * "b")


def test_a_config_that_was_changed_or_is_lost_is_refused(tmp_path):
    RunFolder(tmp_path).write_config({"beta": 5.0}, {}, "data")
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace("5.0", "4.0"))
    with pytest.raises(UsageError, match=r"config.json is damaged"):
        RunFolder(tmp_path).config()
    file.unlink()
    assert RunFolder(tmp_path).config() is None
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(UsageError, match=r"holds checkpoints but no config.json"):
        RunFolder(tmp_path).config()


def test_a_config_of_before_there_were_sums_is_read(tmp_path):
    (tmp_path / "config.json").write_text('{"seed": 0}')
    assert RunFolder(tmp_path).config() == {"seed": 0}
    RunFolder(tmp_path).refuse_other_data("any")
