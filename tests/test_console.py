"""What the terminal shows: banner, progress, colours, commands, signals."""

import io
import logging
import os
import signal
import subprocess
import sys
import time

import pytest
import small_runs

import cat_jax
from cat_jax import __main__
from cat_jax.cli import banner
from cat_jax.runtime import signals, terminal


class Terminal(io.StringIO):
    """Standard error as a terminal has it."""

    def isatty(self):
        return True


@pytest.fixture
def told(monkeypatch):
    """Starts the messages on a stream that stands for standard error; undone after the test."""
    package = logging.getLogger("cat_jax")
    kept = package.level, package.propagate, package.handlers

    def start(stream, **settings):
        monkeypatch.setattr(sys, "stderr", stream)
        terminal.start(0, **settings)

    yield start
    package.propagate, package.handlers = kept[1:]
    package.setLevel(kept[0])


def test_the_banner_says_what_will_run_and_where_it_goes(tmp_path):
    made, dataset, _ = small_runs.experiment(small_runs.config(), 4)
    trained, evaluated = (
        banner.banner(made, dataset, tmp_path / "x", trains=trains) for trains in (True, False)
    )
    for text in (
        *(
            f"cat_jax {cat_jax.__version__}: synthetic:cat_cent",
            "SmallCNN, SmallMask",
            "; epsilon 0.15 in linf, 2 steps of attack",
            "natural, pgd20; epsilon 0.15 in linf",
            "conventions",
        ),
        *("8x8x3: 224 images to train on, 32 to validate, 64 to test", "natural, pgd20"),
        *("4 (cpu), 1 process", str(tmp_path / "x"), "epsilon 0.15"),
    ):
        assert text in trained and text in evaluated, text
    assert "12 steps of 16 images, 0.857 epochs" in trained and "12 steps" not in evaluated
    assert len(trained.splitlines()) == 8 == len(evaluated.splitlines()) + 1


@pytest.mark.parametrize(
    "at_once, told",
    [(1, "About 45 min for 896 steps of 3 s"), (20, "About 2 min for 820 steps of 0.15 s")],
)
def test_how_long_it_takes_is_said_once_when_it_is_measured(monkeypatch, at_once, told):
    clock = iter([0, 60, 63, 66, 69])  # The first step is compiled.
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    pace = terminal.Pace(total=1000)
    said = [pace.after(100 + i * at_once) for i in range(1, 6)]
    assert said == [*[""] * 3, f"{told}; attacks come after.", ""]
    assert [terminal.duration(s) for s in (3, 100, 3000, 11_100)] == [
        "3 s",
        "2 min",
        "50 min",
        "3 h 5 min",
    ]


def test_bars_and_colours_are_for_terminals(told, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    log = logging.getLogger("cat_jax.x")

    def write(stream, **settings):
        told(stream, **settings)
        with terminal.bar(total=2, desc="steps", file=stream) as bar:
            bar.update()
        log.info("fine")
        log.warning("odd")
        log.error("bad")
        return stream.getvalue()

    plain = write(io.StringIO())
    assert "fine" in plain and "steps" not in plain and "\033" not in plain and "\r" not in plain
    on_terminal = write(Terminal())
    assert "steps" in on_terminal and "odd\033[0m" in on_terminal and "\033[31m" in on_terminal
    quiet = write(Terminal(), quiet=True)
    assert "fine" not in quiet and "steps" not in quiet and "odd" in quiet and "bad" in quiet
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033[3" not in write(Terminal())
    assert terminal.coloured("x", terminal.RED, Terminal()) == "x"


def test_a_second_ctrl_c_ends_at_once_and_one_passed_on_by_a_script_does_not(monkeypatch, caplog):
    now, former = [0.0], signal.getsignal(signal.SIGINT)  # Ignored in a background job.
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with caplog.at_level(logging.INFO, "cat_jax"), signals.stop_on_signal() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked and "Ctrl-C again ends at once" in caplog.text
        now[0] = 0.1
        os.kill(os.getpid(), signal.SIGINT)
        now[0] = 5.0
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is former


def test_the_commands_are_listed_with_a_line_each(capsys):
    assert __main__.main([]) == 0
    output = capsys.readouterr().out
    listed = {
        name: " ".join(words)
        for name, *words in map(str.split, output.partition("\n\n")[2].split("python -m ")[1:])
    }
    assert {"cat_jax.data", "cat_jax.main", "cat_jax.report", "cat_jax.theory"} <= listed.keys()
    assert listed["cat_jax.main"] == "Trains and evaluates one experiment."
    assert all(listed.values()) and all(len(line) <= 80 for line in output.splitlines())
    assert __main__.main(["train"]) == 2
    assert capsys.readouterr().err.startswith("error: 'train' is not understood; expected")


def test_the_list_of_commands_needs_no_jax():
    command = [sys.executable, "-X", "importtime", "-m", "cat_jax", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"cat_jax {cat_jax.__version__}\n"
    assert "cat_jax" in done.stderr and " jax" not in done.stderr
