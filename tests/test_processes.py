"""Two processes from the command line: stopped, killed and started again, and their evaluation."""

import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import time

import jax
import pytest
import small_runs

from cat_jax.cli import modes
from cat_jax.errors import UsageError
from cat_jax.runtime import cluster, processes
from cat_jax.storage import files

ROOT = pathlib.Path(__file__).parent.parent


@pytest.mark.parametrize(
    "flags, said",
    [
        (("host:1", None, None, None), "need each other; give all three"),
        ((None, None, 0, None), "need each other; give all three"),
        (("host", 2, 0, None), "--coordinator is 'host'; expected HOST:PORT"),
        (("host:1", 2, 2, None), "--process_id is 2 and --num_processes 2; expected"),
        (("host:1", 0, 0, None), "--process_id is 0 and --num_processes 0; expected"),
        (("host:1", None, None, "slurm"), "drop --cluster, or the other three"),
        ((None, None, None, "lsf"), "--cluster is 'lsf'; available: slurm, tpu, k8s"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(flags, said):
    with pytest.raises(UsageError) as caught:
        cluster.start(*flags)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_without_flags_there_is_one_process_whatever_the_environment_says(monkeypatch):
    for name in ("JOB_ID", "STEP_NODELIST", "NTASKS", "PROCID", "LOCALID"):
        monkeypatch.setenv(f"SLURM_{name}", "1")
    cluster.start(None, None, None, None)
    assert processes.is_first() and processes.Agreement()(True, False) == [True, False]
    assert processes.from_first(lambda: 7) == 7


def test_an_error_of_process_0_is_known_as_such_in_the_others(monkeypatch):
    error = OSError(28, "No space left on device")
    assert not processes.is_from_first(error)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    monkeypatch.setattr(processes, "_broadcast", lambda data: pickle.dumps((None, error)))
    with pytest.raises(OSError, match="No space left") as caught:
        processes.from_first(lambda: pytest.fail("process 0 alone computes it"))
    assert processes.is_from_first(caught.value)


def steps(workdir):
    return [line["step"] for line in files.read_json_lines(workdir / "metrics.jsonl")]


def until(condition, processes, seconds=400):
    """Waits; fails if a process ends before."""
    given_up = time.monotonic() + seconds
    while not condition():
        assert all(process.poll() is None for process in processes), processes[0].communicate()
        assert time.monotonic() < given_up
        time.sleep(0.2)


def stop(processes, which, number):
    """Sends a signal to one; (status, error output) of each, and the seconds until all ended."""
    processes[which].send_signal(number)
    started = time.monotonic()
    errors = [process.communicate(timeout=200)[1] for process in processes]
    seconds = time.monotonic() - started
    return [(p.returncode, text) for p, text in zip(processes, errors, strict=True)], seconds


def test_a_lost_process_is_told_from_what_is_wrong_in_this_one(monkeypatch):
    gone = jax.errors.JaxRuntimeError("UNAVAILABLE"), ValueError("Gloo all-reduce failed: closed")
    assert not any(map(processes.is_loss, gone)), "there is one process"
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert all(map(processes.is_loss, gone))
    full = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
    assert not any(map(processes.is_loss, (full, ValueError("a bad shape"))))


def local(folder, *arguments, **variables):
    """Starts `launch/local.sh 2` with the flags of a small run, from a copy in `folder`."""
    launch = folder / "launch"
    if not launch.exists():
        shutil.copytree(ROOT / "launch", launch)
        with open(launch / "_setup.sh", "a") as stream:
            stream.write(f"\nset_up() {{ python={sys.executable}; }}\n")
    return subprocess.Popen(
        ["bash", launch / "local.sh", "2", *small_runs.flags(*arguments)],
        env=small_runs.environment(XLA_FLAGS="", **variables),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def identity(*words):
    """The id of the Python process whose command line has these words."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_text().split("\0")
        except OSError:  # It has ended.
            continue
        if {"cat_jax.main", *words} <= set(line):
            return int(folder.name)
    raise AssertionError(f"no process has {words}")


@pytest.mark.slow
def test_a_run_with_a_process_that_is_stopped_ends_with_75_and_resumes_bitwise(tmp_path):
    """local.sh kills the stopped one, which no signal but SIGKILL ends."""
    fields = ("--config.num_steps=60", "--config.save_every=20", "--config.evaluation=none")
    fields += ("--config.log_every=1", "--config.watchdog_minutes=0.1")
    workdir = f"--workdir={tmp_path / 'run'}"
    run = local(tmp_path, *fields, workdir, GRACE="2")
    until(lambda: steps(tmp_path / "run")[-1:] >= [30], [run])
    os.kill(identity(workdir, "--process_id=1"), signal.SIGSTOP)
    begin = time.monotonic()
    _, errors = run.communicate(timeout=200)
    assert run.returncode == processes.TRY_AGAIN and time.monotonic() - begin < 90, errors
    assert "No progress" in errors and "while stepping" in errors and "Thread 0x" in errors
    assert "process 0 ended with status 75" in errors
    assert "Killing process 1: still running 2 s after another failed." in errors
    for name in ("run", "uninterrupted"):
        run = local(tmp_path, *fields, f"--workdir={tmp_path / name}")
        _, errors = run.communicate(timeout=400)
        assert run.returncode == 0, errors
    saved = [small_runs.manifest(tmp_path / name) for name in ("run", "uninterrupted")]
    assert saved[0]["arrays"] == saved[1]["arrays"] and saved[0]["step"] == 60


HANGS = """
import ctypes, os
from cat_jax.data import Feed

feed = Feed.__call__
def hanging(self, step, count=1):
    if step == 45 and os.path.exists({hangs!r}):
        libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(128)
        while True:
            libc.pthread_mutex_lock(mutex)
    return feed(self, step, count)
Feed.__call__ = hanging
"""


@pytest.mark.slow
def test_two_processes_one_of_which_hangs_end_with_75_and_resume_bitwise(tmp_path):
    """The main thread of process 1 is blocked, while its heartbeats continue."""
    hangs = tmp_path / "hangs"
    fields = ("--config.num_steps=60", "--config.save_every=20", "--config.evaluation=none")
    fields += ("--config.log_every=1", "--config.watchdog_minutes=0.1")

    def start(name, prelude=""):
        return small_runs.two_processes(*fields, f"--workdir={tmp_path / name}", prelude=prelude)

    hangs.touch()
    started = start("run", HANGS.format(hangs=str(hangs)))
    until(lambda: steps(tmp_path / "run")[-1:] >= [44], started)
    begin = time.monotonic()
    errors = [process.communicate(timeout=200)[1] for process in started]
    assert time.monotonic() - begin < 60
    assert [process.returncode for process in started] == [processes.TRY_AGAIN] * 2, errors
    assert "No progress" in errors[0] and "while stepping" in errors[0]
    assert "process 1: No progress" in errors[1] and "while waiting for data" in errors[1]
    assert "in hanging" in errors[1] and all("Thread 0x" in text for text in errors)
    hangs.unlink()
    for name in ("run", "uninterrupted"):
        ended = [(p, p.communicate(timeout=400)[1]) for p in start(name)]
        assert [process.returncode for process, _ in ended] == [0, 0], ended
    saved = [small_runs.manifest(tmp_path / name) for name in ("run", "uninterrupted")]
    assert saved[0]["arrays"] == saved[1]["arrays"] and saved[0]["step"] == 60


@pytest.mark.slow
def test_a_run_of_two_processes_survives_signals_and_deaths(tmp_path, capsys):
    workdir = tmp_path / "run"
    endless = (f"--workdir={workdir}", "--config.num_steps=1000000", "--config.evaluation=none")

    started = small_runs.two_processes(*endless)
    until(lambda: len(steps(workdir)) >= 2, started)
    ended, _ = stop(started, 1, signal.SIGTERM)
    assert [code for code, _ in ended] == [0, 0], ended
    saved = small_runs.manifest(workdir)["step"]
    assert f"Stopped by a signal at step {saved} of" in ended[0][1]
    assert "Stopped" not in ended[1][1] and not (tmp_path / "run" / "run").exists()

    for killed in (1, 0):
        started = small_runs.two_processes(*endless)
        beyond = steps(workdir)[-1] + 8
        until(lambda beyond=beyond: steps(workdir)[-1] > beyond, started)
        ended, seconds = stop(started, killed, signal.SIGKILL)
        code, errors = ended[1 - killed]
        assert code in (processes.TRY_AGAIN, -signal.SIGABRT), errors
        assert seconds < 60
        assert "lacks lines" not in ended[1][1], "only process 0 has the file"
        assert "another task died" in errors or "Another process was lost" in errors
        assert "Resuming from the checkpoint of step" in ended[0][1]
        saved = small_runs.manifest(workdir)["step"]

    done = local(tmp_path, f"--config.num_steps={saved + 4}", f"--workdir={workdir}", DEVICES="2")
    output, errors = done.communicate(timeout=400)
    assert done.returncode == 0, errors
    assert "best = last |" in output
    made = steps(workdir)
    assert made == sorted(made) and made[-1] == saved + 4
    records = files.read_json_lines(workdir / "results.jsonl")
    assert {
        (r["attacked"]["num_devices"], r["conditions"]["num_examples"])
        for r in records
        if r["attacked"]["checkpoint"] == "last"
    } == {(4, 64)}

    shutil.rmtree(workdir / "evaluation")
    (workdir / "results.jsonl").unlink()
    modes.evaluate(None, workdir)
    again = files.read_json_lines(workdir / "results.jsonl")
    accuracies = [r["outcome"]["accuracy"] for r in records]
    assert [r["outcome"]["accuracy"] for r in again] == accuracies
