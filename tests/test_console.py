"""What the terminal shows: banner, progress, colours, commands, signals."""

import importlib
import io
import logging
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import small_runs

import cat_jax
from cat_jax import __main__
from cat_jax.cli import banner, command_line
from cat_jax.evaluation import attack_progress
from cat_jax.runtime import signals, terminal
from cat_jax.storage.run_folder import RunFolder


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


def test_messages_also_go_to_a_file_with_their_dates(told, tmp_path):
    told(io.StringIO())
    logger, file = logging.getLogger("cat_jax.training.loop"), tmp_path / "log.txt"
    for text in ("first start", "second start"):
        with terminal.also_in(file):
            logger.info(text)
        logger.info("outside")
    lines = file.read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == ["first start", "second start"]
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in lines)


def test_the_banner_describes_the_run_in_80_columns(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    config = small_runs.config(evaluation="natural,pgd20,corruptions")
    experiment, dataset, _ = small_runs.experiment(config, 4)
    trained, evaluated = (
        banner.banner(experiment, dataset, RunFolder(tmp_path), trains=trains)
        for trains in (True, False)
    )
    for text in (
        f"cat_jax {cat_jax.__version__}: train and evaluate synthetic:cat_cent",
        "10 classes, 8x8x3; 224 training, 32 validation and 64 test images",
        "classifier TinyClassifier, mask network TinyMask",
        "cat_cent, released conventions, seed 0",
        "threat model L-infinity, training radius 0.15, test radius 0.15",
        "training 12 steps of 16 images (0.857 epochs); 2 attack steps of",
        "evaluation natural, pgd20, corruptions",
        "as 4 devices",
        f"workdir {tmp_path}",
    ):
        assert text in " ".join(trained.split()), text
    assert "evaluate synthetic:cat_cent" in evaluated and "12 steps" not in evaluated
    assert all(len(line) <= 80 or str(tmp_path) in line for line in trained.splitlines())


def test_the_banner_shows_both_radii_and_no_attack_of_plain_training(tmp_path):
    lines = {}
    plain = {"method.name": "standard", "mask_net.name": "OnesMask"}
    for method, radius, more in (("cat", "0.2", {}), ("standard", "0.3", plain)):
        fields = {"test.epsilon": radius} | more
        experiment, dataset, _ = small_runs.experiment(small_runs.config(**fields))
        lines[method] = banner.banner(experiment, dataset, RunFolder(tmp_path), trains=True)
    assert "L-infinity, training radius 0.15, test radius 0.2" in lines["cat"]
    assert "L-infinity, test radius 0.3; training without attack" in lines["standard"]
    assert "attack steps" in lines["cat"] and "attack steps" not in lines["standard"]


@pytest.mark.parametrize(
    "steps_per_call, text", [(1, "45 min (896 steps at 3 s)"), (20, "2 min (820 steps at 0.15 s)")]
)
def test_one_estimate_leaves_out_compilation_and_pauses(monkeypatch, steps_per_call, text):
    # Two calls compile; a validation takes 100 seconds.
    now = iter([0, 60, 63, 166, 169])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    clock, estimates = terminal.Clock(total=1000, warmup=2), []
    for i in range(1, 6):
        clock.update(100 + i * steps_per_call)
        estimates.append(clock.estimate(100 + i * steps_per_call))
        if i == 3:
            clock.exclude(100)
    assert estimates == [*[""] * 3, text, ""]
    assert clock.left(1000) == 0 and terminal.Clock(10, 1).left(0) is None
    texts = [terminal.duration(s) for s in (3, 100, 3000, 11_100)]
    assert texts == ["3 s", "2 min", "50 min", "3 h 5 min"]
    assert terminal.speed(4.13, "step") == "4.1 s/step"
    assert terminal.speed(0.25, "step") == "4 steps/s"


def test_the_bar_says_that_it_compiles_and_how_long_the_rest_takes(told, monkeypatch):
    stream = Terminal()
    told(stream)
    with terminal.Progress("pgd20", 100, "image", expected=40.0) as progress:
        assert "pgd20, compiling" in stream.getvalue()
        progress.update(0)  # One batch of all images is on its way.
        progress._show()
        assert "pgd20   0%" in stream.getvalue() and ", 40 s left" in stream.getvalue()
        with progress.doing("saving"):
            assert "pgd20, saving" in stream.getvalue()


def test_the_time_of_an_attack_is_judged_by_the_attack_before(monkeypatch):
    pgd20 = {"num_steps": 20, "restarts": 1}
    assert attack_progress.forward_passes(pgd20) == 61
    assert attack_progress.forward_passes({"num_queries": 5000}) == 5001
    expected = []

    class Progress(terminal.Progress):
        def __init__(self, *arguments, **settings):
            expected.append(settings["expected"])
            super().__init__(*arguments, **settings)

    monkeypatch.setattr(terminal, "Progress", Progress)
    now = [10.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = attack_progress.AttackProgress()
    pgd100 = pgd20 | {"num_steps": 100}
    for conditions, num_before in ((pgd20, 0), (pgd100, 40), (pgd100, 50)):  # 40: resumed.
        with progress.bar("pgd", conditions, 50, 50) as on_batch:
            on_batch(num_before)
            now[0] += 30.5
            on_batch(50)
    assert expected[0] is None and expected[1] == pytest.approx(30.5 / 61 * 301)
    assert expected[2] == pytest.approx(30.5 / 10 * 50)


def test_bars_and_colours_are_for_terminals(told, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    log = logging.getLogger("cat_jax.x")

    def write(stream, **settings):
        told(stream, **settings)
        with terminal.Progress("steps", 2, "step") as progress:
            progress.update(1)
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
        assert stop.requested and "Ctrl-C again ends at once" in caplog.text
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


@pytest.mark.parametrize("name", [*__main__.COMMANDS])
def test_the_help_of_a_command_fits_a_screen_and_begins_with_examples(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    module = importlib.import_module(
        f"cat_jax.{name}" if name in ("main", "weights.export") else f"cat_jax.{name}.__main__"
    )
    if name == "main":
        text = command_line.help_text(module.__doc__)
    else:
        monkeypatch.setattr(sys, "argv", [name, "--help"])
        with pytest.raises(SystemExit) as stopped:
            module.parse([name, "--help"]) if name == "plan" else module.main()
        assert stopped.value.code == 0
        text = capsys.readouterr().out
    lines = text.splitlines()
    assert len(lines) <= 40 and all(len(line) <= 80 for line in lines), text
    assert text.count(f"\n    python -m cat_jax.{name} ") + text.count(f"{name}\n") >= 1
    first = text.index(f"\n    python -m cat_jax.{name}")
    assert all(first < text.index(flag) for flag in ("\n  --", "\noptions") if flag in text)
