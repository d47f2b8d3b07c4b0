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
from cat_jax.storage import run_folder

HOLD = """
import fcntl, os, sys, time
lock = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(lock, fcntl.LOCK_EX)
print(flush=True)
time.sleep(60)
"""


def test_a_second_run_is_refused_by_the_name_of_the_first_and_may_follow_it(tmp_path):
    holder = f"in use by process {os.getpid()} on {socket.gethostname()}"
    with run_folder.claimed(tmp_path / "run"):
        with pytest.raises(UsageError, match=holder) as error, run_folder.claimed(tmp_path / "run"):
            pass
        with run_folder.claimed(tmp_path / "another"):
            pass
    assert "\n" not in str(error.value)
    with run_folder.claimed(tmp_path / "run"):
        pass
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


def test_a_killed_process_leaves_no_lock(tmp_path):
    (tmp_path / ".lock").touch()
    command = [sys.executable, "-S", "-c", HOLD, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with pytest.raises(UsageError, match="in use by another"), run_folder.claimed(tmp_path):
            pass
        process.send_signal(signal.SIGKILL)
    with run_folder.claimed(tmp_path):
        pass


def test_a_file_system_without_locks_is_warned_of(tmp_path, monkeypatch, caplog):
    def flock(*args):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(run_folder.fcntl, "flock", flock)
    with caplog.at_level(logging.WARNING, "cat_jax"), run_folder.claimed(tmp_path):
        pass
    assert "cannot be locked (No locks available)" in caplog.text


def test_a_workdir_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    def write_text(*args):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(run_folder.files, "write_text", write_text)
    with pytest.raises(UsageError, match=r"Cannot write .*Read-only file system.*--workdir="):
        with run_folder.claimed(tmp_path):
            pass


def test_other_data_are_refused_by_both_fingerprints(tmp_path):
    run_folder.refuse_other_data(tmp_path, "any")
    run_folder.write_config(tmp_path, {"seed": 0}, {}, 64 * "a")
    assert run_folder.read_config(tmp_path) == {"seed": 0}
    run_folder.refuse_other_data(tmp_path, 64 * "a")
    with pytest.raises(UsageError, match=r"aaaaaaaaaaaa there, bbbbbbbbbbbb now; .*data_dir"):
        run_folder.refuse_other_data(tmp_path, 64 * "b")


def test_a_config_that_was_changed_or_is_lost_is_refused(tmp_path):
    run_folder.write_config(tmp_path, {"beta": 5.0}, {}, "data")
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace("5.0", "4.0"))
    with pytest.raises(UsageError, match=r"config.json is damaged"):
        run_folder.read_config(tmp_path)
    file.unlink()
    assert run_folder.read_config(tmp_path) is None
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(UsageError, match=r"holds checkpoints but no config.json"):
        run_folder.read_config(tmp_path)


def test_a_config_of_before_there_were_sums_is_read(tmp_path):
    (tmp_path / "config.json").write_text('{"seed": 0}')
    assert run_folder.read_config(tmp_path) == {"seed": 0}
    run_folder.refuse_other_data(tmp_path, "any")
