"""Two processes from the command line: stopped, killed and started again, and their evaluation."""

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
    assert processes.is_first() and processes.Agreement()(True)
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

    launch = tmp_path / "launch"
    shutil.copytree(ROOT / "launch", launch)
    with open(launch / "_setup.sh", "a") as stream:
        stream.write(f"\nset_up() {{ python={sys.executable}; }}\n")
    flags = small_runs.flags(f"--config.num_steps={saved + 4}", f"--workdir={workdir}")
    done = subprocess.run(
        ["bash", launch / "local.sh", "2", *flags],
        env=small_runs.environment(XLA_FLAGS="", DEVICES="2"),
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "best = last |" in done.stdout
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
