"""The command line: one command trains and evaluates; what is wrong is said in one line."""

import errno
import json
import re
import shutil

import finished_runs
import numpy as np
import pytest
import small_runs
from absl.testing import flagsaver

from cat_jax import data, main
from cat_jax.cli import command_line, modes
from cat_jax.errors import UsageError
from cat_jax.evaluation import robustness
from cat_jax.experiment import run_config, settings
from cat_jax.runtime import terminal
from cat_jax.storage import files, lines
from cat_jax.storage.run_folder import RunFolder

BAD = {
    "unknown variant": (["--config=cat_jax:digits:cat_cwe"], "available: cat_cent"),
    "misspelt field": (["--config.method.beat=1"], "did you mean method.beta?"),
    "epsilon on the wrong scale": (["--config.attack.epsilon=8"], "write 8/255"),
    "wrong type": (["--config.method.beta=high"], "could not convert string to float: 'high'"),
    "no such config file": (["--config=configs/nope.py"], "--config=cat_jax:NAME"),
    "no such flag": (["--confg=x"], "Unknown command line flag 'confg'"),
    "no such attack": (["--config.evaluation=paper,pgd21"], "'pgd21'; available: none, quick"),
    "no data": (
        ["--config.dataset=mnist", "--config.data_dir=/nowhere"],
        "python -m cat_jax.data --dataset=mnist",
    ),
    "weights and training": (["--weights=w.safetensors"], "--weights needs --mode=evaluate"),
    "no weights": (
        ["--mode=evaluate", "--weights=/nowhere/w.safetensors"],
        "There is no /nowhere/w.safetensors;",
    ),
    "unwritable workdir": (["--workdir=/dev/null/x"], "Cannot write in workdir /dev/null/x"),
}


# In processes of their own: what parsing finds, what running finds.
PROCESSES = ("no such flag", "epsilon on the wrong scale")


def check_answer(name, status, output, errors, workdir):
    assert status == 2, (name, errors)
    assert output == "" and errors.count("\n") == 1, (name, errors)
    assert errors.startswith("error: ") and BAD[name][1] in errors, (name, errors)
    assert not workdir.exists(), "a start that fails leaves no workdir"


# ml_collections loads config files in a way that Python 3.12 deprecates.
CONFIG_FILES = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")


def as_a_command(monkeypatch, *argv):
    """Runs `python -m cat_jax.main` here; returns its exit status."""
    monkeypatch.setattr(terminal, "start", lambda process, quiet: None)  # caplog's to do.
    monkeypatch.setattr("sys.argv", ["main", *argv])  # Overrides of a config are read from there.
    with flagsaver.flagsaver():
        try:
            main.main(command_line.parse(["main", *argv]))
        except SystemExit as ended:
            return ended.code
    return 0


@CONFIG_FILES
@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_answered_in_one_line_that_names_the_remedy(
    name, tmp_path, capsys, monkeypatch
):
    workdir = tmp_path / "run"
    argv = small_runs.flags(f"--workdir={workdir}", *BAD[name][0])
    status = as_a_command(monkeypatch, *argv)
    check_answer(name, status, *capsys.readouterr(), workdir)


@CONFIG_FILES
def test_paths_on_the_command_line_are_those_of_this_machine(tmp_path, capsys, monkeypatch):
    """Of ~ they are the home folder's; nothing is made for an address or inside a run."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "r"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.json").write_text("{}")
    for workdir, message in (
        ("~/x", f"{tmp_path}/x holds neither config.json nor checkpoints/"),
        ("gs://b/x", "--workdir is gs://b/x; expected a path on this machine"),
        ("runs/r/checkpoints", "inside the run runs/r; name the run: --workdir=runs/r"),
    ):
        for flags in ((f"--workdir={workdir}",), ("--workdir", workdir)):
            assert as_a_command(monkeypatch, "--mode=verify", *flags) == 2
            assert message in capsys.readouterr().err
    assert as_a_command(monkeypatch, "--config=~/my.py:at", "--workdir=x") == 2
    assert f"There is no config file {tmp_path}/my.py" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"runs"}


def test_a_process_that_is_given_bad_input_ends_likewise_and_help_explains(tmp_path):
    workdir = tmp_path / "run"
    started = {
        name: small_runs.command_line(f"--workdir={workdir}", *BAD[name][0]) for name in PROCESSES
    }
    helpful = small_runs.command_line("--help")
    for name, process in started.items():
        answer = process.communicate(timeout=120)
        check_answer(name, process.returncode, *answer, workdir)
    output, _ = helpful.communicate(timeout=120)
    assert helpful.returncode == 0
    assert "The first command trains, or resumes the run in the workdir" in " ".join(output.split())
    assert "--workdir" in output and "--mode" in output


def test_one_command_trains_evaluates_and_prints(finished, capsys):
    names = {path.name for path in finished.iterdir()}
    assert names == {
        *("config.json", "metrics.jsonl", "tensorboard", "checkpoints", ".lock"),
        *("evaluation", "results.jsonl", "checks.jsonl", "masks.npz", "report.html"),
        *("commands.jsonl", "log.txt"),
    }
    every = files.read_json_lines(finished / "results.jsonl")
    records = [record for record in every if not lines.is_curve(record)]
    assert len(every) > len(records)
    names = [(r["attacked"]["checkpoint"], r["conditions"]["attack"]) for r in records]
    assert names == [
        (checkpoint, attack) for checkpoint in ("best", "last") for attack in ("natural", "pgd20")
    ]
    attacked = {"dataset", "data_sha", "classifier", "method", "variant", "seed", "checkpoint"}
    attacked |= {"step", "weights", "training", "conventions", "selection"}
    outcome = {"accuracy", "interval", "num_attacked", "mean_queries", "seconds", "date", "device"}
    outcome |= {"versions", "git_sha", "config"}
    for record in records:
        assert record.keys() == {"attacked", "conditions", "outcome"}
        assert attacked <= record["attacked"].keys() and outcome <= record["outcome"].keys()
        assert record["conditions"]["num_examples"] == 64 and record["attacked"]["step"] == 12
        low, high = record["outcome"]["interval"]
        assert low <= record["outcome"]["accuracy"] <= high
        assert record["attacked"]["training"]["method.kl_p"] == "reference"
    assert records[1]["conditions"] == {
        "attack": "pgd20",
        "norm": "linf",
        "epsilon": 0.15,
        "step_size": 0.015,
        "num_steps": 20,
        "restarts": 1,
        "random_start": False,
        "loss": "cross_entropy",
        "clipped": True,
        "precision": "float32",
        "seed": 0,
        "num_examples": 64,
        "subset": "all",
    }


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
@CONFIG_FILES
def test_the_flags_of_a_command_train_and_evaluate(tmp_path, capsys, monkeypatch):
    workdir = tmp_path / "run"
    short = ("--config.num_steps=2", "--config.evaluation=natural")
    assert as_a_command(monkeypatch, *small_runs.flags(f"--workdir={workdir}", *short)) == 0
    assert "| best = last |" in capsys.readouterr().out
    assert small_runs.manifest(workdir)["step"] == 2
    records = files.read_json_lines(workdir / "results.jsonl")
    assert {record["attacked"]["step"] for record in records} == {2}


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_the_average_is_evaluated_beside_the_classifier(tmp_path):
    config = small_runs.quick_config(
        **{"average.kind": "moving", "average.decay": 0.9, "num_steps": 3}
    )
    modes.train(config, tmp_path / "run")
    records = files.read_json_lines(tmp_path / "run" / "results.jsonl")
    names = list(dict.fromkeys(record["attacked"]["checkpoint"] for record in records))
    assert names == ["best", "last", "best_average", "last_average"]
    assert all(record["conditions"]["num_examples"] == 64 for record in records)


@pytest.mark.usefixtures("no_page")
def test_the_same_command_again_changes_nothing_but_prints_the_table(finished, capsys):
    evaluated = [*finished.rglob("*.npz"), *finished.glob("results.jsonl"), *finished.glob("che*l")]
    before = {path: path.read_bytes() for path in evaluated}
    assert {path.name for path in before} > {"results.jsonl", "checks.jsonl", "masks.npz"}
    modes.train(finished_runs.config(), finished)
    assert "best = last |" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in before} == before


def test_flags_on_disk_are_known_again_by_another_process(finished):
    """Their key is the one of the lines, without a checkpoint's name: no address of a process."""
    results = files.read_json_lines(finished / "results.jsonl")
    for line in results:
        with np.load(finished / "evaluation" / f"{lines.record_stem(line)}.npz") as kept:
            assert str(kept["key"]) == lines.record_key(line)
            origin = json.loads(str(kept["origin"]))
        assert origin.items() <= line["outcome"].items()
        config = json.loads((finished / "evaluation" / f"{origin['config']}.json").read_text())
        assert config["test"]["epsilon"] == 0.15


@pytest.mark.usefixtures("no_page")
@CONFIG_FILES
def test_evaluation_needs_no_config_and_prints_its_results_on_standard_output(
    finished, capsys, monkeypatch
):
    assert as_a_command(monkeypatch, f"--workdir={finished}", "--mode=evaluate") == 0
    printed = capsys.readouterr().out
    assert "best = last |" in printed and "All checks passed (" in printed
    assert printed.rstrip().endswith("|"), "the results come last"


@CONFIG_FILES
def test_ctrl_c_where_there_is_nothing_to_save_says_how_to_go_on(finished, monkeypatch, caplog):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(robustness, "evaluate", interrupted)
    assert as_a_command(monkeypatch, f"--workdir={finished}", "--mode=evaluate") == 130
    assert "Run the same command again to resume" in caplog.text


def test_overrides_without_a_config_change_the_one_that_the_workdir_was_made_with(finished):
    kept = RunFolder(finished).config()
    argv = ["main", "--workdir", str(finished), "--config.evaluation=standard"]
    flag = command_line.find_config(argv)[1].removeprefix("--config=")
    path, _, workdir = flag.partition(":")
    assert (path, workdir) == (run_config.__file__, str(finished))
    config = run_config.get_config(workdir)
    assert settings.as_dict(settings.resolve(config)) == kept
    config.evaluation = "standard"
    config.method.beta = 3.0  # Floats stay floats: types are those of the schema.
    with pytest.raises(TypeError):
        config.method.beta = "3"


@pytest.mark.usefixtures("no_page")
def test_fields_that_are_newer_than_a_workdir_have_their_defaults(finished, tmp_path, capsys):
    workdir = shutil.copytree(finished, tmp_path / "old")
    kept = RunFolder(workdir).config()
    del kept["test"]["subset_seed"], kept["average"]
    (workdir / "config.json").write_text(json.dumps(kept))
    modes.evaluate(None, workdir)
    assert "best = last |" in capsys.readouterr().out
    modes.evaluate(small_runs.config(), workdir)
    with pytest.raises(UsageError, match=r"average.kind"):
        modes.evaluate(small_runs.config(**{"average.kind": "moving"}), workdir)


def test_a_workdir_of_another_config_is_refused_with_the_difference(finished):
    kept = (finished / "config.json").read_text()
    with pytest.raises(UsageError, match=r"method.beta1: 0.05 there, 0.1 now"):
        modes.train(small_runs.config(**{"method.beta1": 0.1}), finished)
    assert (finished / "config.json").read_text() == kept


def test_a_workdir_in_use_or_of_other_data_is_refused_and_left_alone(finished, monkeypatch):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    load = data.load
    with monkeypatch.context() as patch:
        patch.setattr(data, "load", lambda *args: load(*args)._replace(fingerprint=64 * "f"))
        for mode in ("train", "evaluate"):
            with pytest.raises(UsageError, match=r"other data: .* there, ffffffffffff now"):
                getattr(modes, mode)(small_runs.config(), finished)
    with RunFolder(finished).claimed():
        for mode in ("train", "evaluate"):
            with pytest.raises(UsageError, match=r"in use by process"):
                getattr(modes, mode)(small_runs.config(), finished)
        (finished / ".lock").write_bytes(before[finished / ".lock"])
    assert before == {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}


def test_verify_needs_no_config_and_reports_what_is_damaged(finished, tmp_path, capsys):
    assert modes.verify(finished)
    assert "checkpoints/last/00000012: intact\n" in capsys.readouterr().out
    workdir = shutil.copytree(finished, tmp_path / "harmed")
    (workdir / "config.json").write_text("{")
    assert not modes.verify(workdir)
    printed = capsys.readouterr().out
    assert "config.json: DAMAGED: " in printed
    assert re.search(r" intact, \d not checked, 1 DAMAGED\n$", printed)
    shutil.copytree(finished, tmp_path / "intact")
    assert not modes.verify(tmp_path), "the folder of a sweep is as damaged as one of its runs"
    summaries = [line for line in capsys.readouterr().out.splitlines() if " intact" in line]
    assert [line.split()[0] for line in summaries if line.startswith(str(tmp_path))] == [
        f"{tmp_path / name}:" for name in ("harmed", "intact")
    ]
    argv = ["main", "--mode=verify", "--workdir", str(workdir)]
    assert command_line.find_config(argv) == argv, "a damaged config is no reason not to look"
    with pytest.raises(UsageError, match=r"holds neither config.json nor checkpoints/"):
        modes.verify(tmp_path / "intact" / "evaluation")


@pytest.mark.usefixtures("no_page")
def test_what_does_not_touch_the_steps_may_change(finished):
    modes.train(small_runs.config(num_steps=14, evaluation="none", log_every=1), finished)
    assert small_runs.manifest(finished)["step"] == 14


def test_only_errors_of_its_files_are_errors_of_the_workdir(finished, monkeypatch):
    full = OSError(errno.ENOSPC, "No space left on device")
    font = FileNotFoundError(errno.ENOENT, "No such file or directory", "/fonts/x.ttf")
    for error, raised, text in (
        (full, UsageError, f"{finished} cannot be written or read: .*No space.*Free disk space"),
        (font, FileNotFoundError, "x.ttf"),
        (TimeoutError("too slow"), TimeoutError, "too slow"),
    ):

        def fail(*_, error=error):
            raise error

        monkeypatch.setattr(robustness, "evaluate", fail)
        with pytest.raises(raised, match=text):
            modes.evaluate(small_runs.config(), finished)


def test_fewer_steps_than_are_done_are_refused_and_config_json_stays_as_it_is(finished):
    before = (finished / "config.json").read_bytes()
    with pytest.raises(UsageError, match=r"of step 1\d, and this config ends at step 5; set"):
        modes.train(small_runs.config(num_steps=5), finished)
    assert (finished / "config.json").read_bytes() == before


def test_evaluation_of_an_empty_workdir_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"holds no config.json"):
        modes.evaluate(None, tmp_path / "none")
    with pytest.raises(UsageError, match=r"holds no checkpoint;"):
        modes.evaluate(small_runs.config(), tmp_path / "none")


def test_a_damaged_config_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"seed": 0})[:-3])
    with pytest.raises(UsageError, match=r"config.json is damaged"):
        modes.train(small_runs.config(), tmp_path)
