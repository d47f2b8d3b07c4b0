"""SIGKILL at random moments: the end is that of an uninterrupted run, bit for bit.

CRASHES=200 python -m pytest tests/crash    kills 200 times.
"""

import multiprocessing
import os
import pathlib
import random
import signal
import time

import chex
import crashing
import jax
import pytest
import small_runs

from cat_jax.storage import checkpoint, files

COUNTS = [1, pytest.param(20, marks=pytest.mark.slow)]
if "CRASHES" in os.environ:
    COUNTS = [int(os.environ["CRASHES"])]
PATIENCE = 120  # Seconds that a start may take to its next step.


@pytest.fixture(scope="module")
def processes():
    """Starts processes that have imported cat_jax: each costs a second, not five."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["crashing"])
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("XLA_FLAGS")  # One device.
        yield context


def step_of(workdir):
    """The last step that metrics.jsonl has a line of."""
    try:
        return files.read_json_lines(workdir / "metrics.jsonl")[-1]["step"]
    except IndexError:
        return 0


def kill_at(process, workdir, step, delay):
    """Kills the process `delay` seconds after it has made `step`; False if it ended before."""
    deadline = time.monotonic() + PATIENCE
    while process.is_alive() and step_of(workdir) < step:
        assert time.monotonic() < deadline, f"no step {step}"
        time.sleep(0.002)
    time.sleep(delay)
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("count", COUNTS)
def test_a_run_killed_at_random_moments_equals_the_uninterrupted_one(processes, tmp_path, count):
    rng, num_steps = random.Random(count), 30 + 10 * count

    def start(name):
        process = processes.Process(target=crashing.run, args=(tmp_path / name, num_steps))
        process.start()
        return process

    def log(name):
        return pathlib.Path(f"{tmp_path / name}.log").read_text()

    whole = start("whole")
    whole.join()
    assert whole.exitcode == 0, log("whole")
    # Most moments are after some step, in the next one or in a save; some are in a start. The save
    # at step 10 waits for the checkpoint of step 5: there is one to resume from.
    for step in sorted(rng.randrange(11, num_steps - 5) for _ in range(count)):
        begin = 0 if rng.random() < 0.2 else step
        killed = kill_at(start("killed"), tmp_path / "killed", begin, rng.uniform(0, 0.1))
        assert killed, log("killed")
    last = start("killed")
    last.join()
    assert last.exitcode == 0, log("killed")
    assert "Resuming from the checkpoint of step" in log("killed")
    lines = small_runs.metrics(tmp_path / "killed")
    assert [line["step"] for line in lines] == list(range(1, num_steps + 1))
    assert lines == small_runs.metrics(tmp_path / "whole")
    template = jax.eval_shape(small_runs.experiment(crashing.config(num_steps))[0].init)
    for folder in ("last", "best"):
        newest = [
            checkpoint.newest(tmp_path / name / "checkpoints" / folder)
            for name in ("whole", "killed")
        ]
        assert [saved.step for saved in newest] == [num_steps, num_steps]
        chex.assert_trees_all_equal(*(checkpoint.restore(saved, template) for saved in newest))
    assert not list((tmp_path / "killed" / "checkpoints").rglob("damaged-*"))


@pytest.mark.slow
def test_a_kill_loses_at_most_the_time_of_save_minutes(processes, tmp_path):
    """A checkpoint is due every 3 s; a second more is for writing it."""
    rng, num_steps, limit = random.Random(0), 400, 3.0
    fields = {"save_every": 10**6, "save_minutes": limit / 60}

    def start(name):
        arguments = (tmp_path / name, num_steps, 0.05)
        process = processes.Process(target=crashing.run, args=arguments, kwargs=fields)
        process.start()
        return process

    for _ in range(4):
        step = step_of(tmp_path / "killed") + 1
        assert kill_at(start("killed"), tmp_path / "killed", step, rng.uniform(1, 5))
        newest = checkpoint.newest(tmp_path / "killed" / "checkpoints" / "last")
        saved = newest.step if newest else 0
        lines = files.read_json_lines(tmp_path / "killed" / "metrics.jsonl")
        seconds = [line["seconds"] for line in lines if line["step"] > saved]
        lost = sum(one.get("stepping", 0) + one.get("waiting for data", 0) for one in seconds)
        assert lost < limit + 1, (saved, lines[-1])
    assert saved > 0
    for name in ("killed", "whole"):
        process = start(name)
        process.join()
        assert process.exitcode == 0, pathlib.Path(f"{tmp_path / name}.log").read_text()
    ends = [small_runs.manifest(tmp_path / name) for name in ("killed", "whole")]
    assert ends[0]["arrays"] == ends[1]["arrays"] and ends[0]["step"] == num_steps
