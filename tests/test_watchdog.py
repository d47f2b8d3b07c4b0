"""The watchdog ends a process whose main thread is stuck, and no other one."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest
import small_runs

from cat_jax.runtime.activities import ATTACK, STEP, Activities
from cat_jax.runtime.watchdog import Waiting

ROOT = pathlib.Path(__file__).parent.parent
PROGRAM = """
import ctypes, signal, sys, time
from cat_jax.runtime import activities, watchdog

def stuck():
    libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(128)
    with activities.doing("stepping", activities.STEP):
        while True:  # The second call never returns, and no signal interrupts it.
            libc.pthread_mutex_lock(mutex)

def step(seconds):
    with activities.doing("stepping", activities.STEP):
        time.sleep(seconds)

signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
assert "jax" not in sys.modules, "so that the test starts at once"
with watchdog.watching({least}, {process}):
    for _ in range(5):
        step(0.01)
    print("ready", flush=True)
    {then}
    print("done", flush=True)
assert not [t for t in sys.modules["threading"].enumerate() if t.name == "watchdog"]
"""


class FakeClock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def watched(clock):
    return Activities(clock)


def do(watched, clock, name, seconds, *arguments, **named):
    with watched.doing(name, *arguments, **named):
        clock.now += seconds


def test_the_seconds_of_activities_add_up_to_the_time_that_has_passed(watched, clock):
    clock.now += 1
    with watched.doing("validating"):
        clock.now += 2
        do(watched, clock, "attacking", 4, is_part=True)
        do(watched, clock, "saving", 8)
        clock.now += 16
    do(watched, clock, "stepping", 32)
    clock.now += 64
    assert watched.take() == {"starting": 65, "validating": 22, "saving": 8, "stepping": 32}
    assert list(watched.durations["validating"]) == [18]
    assert list(watched.durations["attacking"]) == [4]


def test_an_activity_that_fails_is_over_and_not_measured(watched, clock):
    with pytest.raises(OSError), watched.doing("saving"):
        clock.now += 1
        raise OSError
    assert watched.now.name == "starting" and not watched.durations
    assert watched.take() == {"starting": 0, "saving": 1}


def test_other_threads_have_no_activities(watched, clock):
    thread = threading.Thread(target=do, args=(watched, clock, "saving", 1))
    thread.start()
    thread.join()
    assert watched.now.serial == 0 and watched.take() == {"starting": 1}


@pytest.mark.parametrize(
    "name, patience, durations, limit",
    [
        ("stepping", STEP, [], 120),  # The first step waits for compilation.
        ("stepping", STEP, [0.1, 0.1], 120),
        ("stepping", STEP, [0.1] * 3, 10),
        ("stepping", STEP, [0.1, 2, 0.1], 40),
        ("stepping", STEP, [50] + [0.1] * 20, 10),  # What is long ago does not count.
        ("attacking", ATTACK, [], 1440),
        ("attacking", ATTACK, [1] * 5, 120),
        ("saving", None, [0.1] * 9, 120),
        ("saving", None, [30], 600),
    ],
)
def test_the_limit_follows_the_last_durations(watched, clock, name, patience, durations, limit):
    patience = [] if patience is None else [patience]
    for seconds in durations:
        do(watched, clock, name, seconds, *patience)
    with watched.doing(name, *patience):
        waiting = Waiting(watched, least=10)
        assert waiting.limit(watched.now) == pytest.approx(limit)
        assert not waiting.add(limit - 0.1)
        assert f"No progress for {limit + 1:.0f} s while {name}" in waiting.add(1.1)
        with watched.doing("anything"):
            assert not waiting.add(1)
        assert not waiting.add(1) and waiting.seconds == 0, "the end of an activity is progress"


def test_after_a_signal_the_limits_are_shorter(watched, clock):
    for _ in range(3):
        do(watched, clock, "stepping", 0.01, STEP)
    with watched.doing("stepping", STEP):
        waiting = Waiting(watched, least=600)
        assert not waiting.add(240)
        waiting.is_stopping = True
        assert "for 241 s while stepping (limit 60 s" in waiting.add(1)


@pytest.fixture
def started():
    """Starts PROGRAM and waits until its main thread has done five steps."""
    processes = []

    def start(then, least, process=None):
        code = PROGRAM.format(then=then, least=least, process=process)
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [sys.executable, "-c", code]
        processes.append(subprocess.Popen(command, text=True, env=environment, **pipes))
        assert processes[-1].stdout.readline() == "ready\n", processes[-1].communicate()
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_a_main_thread_that_is_stuck_in_c_ends_with_75_and_its_stacks(started):
    """Also one that has got a SIGTERM, which its own handler never sees."""
    stuck, stopped = started("stuck()", 1), started("stuck()", 10, process=1)
    time.sleep(1.5)  # More than a tenth of ten seconds.
    assert stopped.poll() is None
    stopped.send_signal(signal.SIGTERM)
    for process in (stuck, stopped):
        output, errors = process.communicate(timeout=60)
        assert process.returncode == os.EX_TEMPFAIL and output == "", (output, errors)
        assert "s while stepping (limit 1 s" in errors
        assert "in stuck\n" in errors and "in _watch\n" in errors, "stacks of all threads"
    assert errors.startswith("process 1: No progress")


def test_a_process_that_works_or_was_stopped_and_continued_is_left_alone(started):
    working = started("[step(0.1) for _ in range(20)]", 0.5)
    working.send_signal(signal.SIGSTOP)
    time.sleep(1.5)
    working.send_signal(signal.SIGCONT)
    output, errors = working.communicate(timeout=60)
    assert (working.returncode, output, errors) == (0, "done\n", "")


SLOW_RUN = """
import time
from cat_jax.storage.saving import Saver
from cat_jax.training.loop import _Run
from cat_jax.training.validation import Validator

def slow(owner, name, is_once=False):
    function, calls = getattr(owner, name), []
    def wrapped(*arguments, **named):
        calls.append(name)
        if not is_once or len(calls) == 1:
            time.sleep(8)
        return function(*arguments, **named)
    setattr(owner, name, wrapped)

slow(_Run, "_call", is_once=True)
slow(Validator, "__call__")
slow(Saver, "save")
"""


@pytest.mark.slow
def test_a_run_that_compiles_validates_and_saves_longer_than_the_limit_of_a_step_goes_on(tmp_path):
    """The limit of a measured step is 6 s; the first step, validations and saves take 8 s more."""
    process = small_runs.command_line(
        *(f"--workdir={tmp_path / 'run'}", "--config.watchdog_minutes=0.1"),
        *("--config.num_steps=12", "--config.save_every=6", "--config.evaluation=none"),
        *("--config.validation.every_epochs=0.5", "--config.log_every=1"),
        prelude=SLOW_RUN,
    )
    errors = process.communicate(timeout=500)[1]
    assert process.returncode == 0 and "No progress" not in errors, errors
    assert small_runs.manifest(tmp_path / "run")["step"] == 12
