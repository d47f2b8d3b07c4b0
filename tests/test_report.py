"""What was published, found for the run that stands for it, and printed beside it."""

import io
import json
import re
import subprocess
import sys
from types import SimpleNamespace

import made_lines
import pytest

from cat_jax.configs import digits, mnist, preact_cifar10, preact_cifar100, wrn_cifar10
from cat_jax.evaluation import result_lines
from cat_jax.evaluation.checks import Finding
from cat_jax.experiment import settings
from cat_jax.paper import references
from cat_jax.report import __main__ as command
from cat_jax.report import details, seed_means, tables
from cat_jax.storage import files, lines
from cat_jax.storage.run_folder import RunFolder


def published(folder, config, **overrides):
    """The caption of a run's reference, and its numbers by the attacks that they stand beside."""
    config.update_from_flattened_dict(overrides)
    resolved = settings.resolve(config)
    RunFolder(folder).write_config(settings.as_dict(resolved), {}, "")
    if (reference := references.of_run(folder)) is None:
        return "", {}
    every = made_lines.conditions(resolved).items()
    numbers = {attack: text for attack, conditions in every if (text := reference.text(conditions))}
    return reference.caption, numbers


@pytest.mark.parametrize(
    "config, overrides, attack, want",
    [
        (mnist.get_config("cat_cw"), {}, "pgd20_unclipped", "97.1"),
        (mnist.get_config("cat_cent"), {"attack.epsilon": "0.3"}, "natural", "99.3"),
        (mnist.get_config("at"), {"attack.epsilon": "0.3"}, "pgd100_unclipped", "92.3"),
        (preact_cifar10.get_config("cat_cw"), {}, "cw_inf", "51.3 ± 0.3"),
        (preact_cifar10.get_config("cat_cent"), {"method.beta1": 0.1}, "pgd100", "53.4 ± 0.06"),
        (preact_cifar10.get_config("cat_cent"), {"method.beta": 2.0}, "pgd20", "51.7"),
        (preact_cifar10.get_config("cat_cent"), {}, "square", "56.4 ± 0.1"),
        (preact_cifar10.get_config("at"), {}, "fgsm", "57.3"),
        (preact_cifar10.get_config("trades"), {}, "pgd20", "52.8"),
        (preact_cifar10.get_config("mart"), {}, "fgsm", "60.2"),
        (preact_cifar10.get_config("fat"), {}, "natural", "85.1"),
        (mnist.get_config("trades"), {"attack.epsilon": "0.3"}, "pgd20_unclipped", "94.9"),
        (wrn_cifar10.get_config("mart"), {}, "cw_inf", "53.7"),
        (wrn_cifar10.get_config("cat_cw"), {}, "pgd20", "59.7 ± 0.1"),
        (wrn_cifar10.get_config("fat"), {"test.epsilon": "0.031"}, "pgd20", "55.9 ± 0.2"),
        (preact_cifar100.get_config("cat_cent"), {}, "cw_inf", "25.6"),
    ],
)
def test_a_run_finds_its_published_numbers(tmp_path, config, overrides, attack, want):
    assert published(tmp_path, config, **overrides)[1][attack] == want


def test_clipped_mnist_numbers_are_never_put_beside_unclipped_ones(tmp_path):
    caption, numbers = published(tmp_path, mnist.get_config("cat_cw"))
    assert "pgd20" not in numbers
    assert caption.endswith("is CAT_cw(0.4); the run differs: num_validation=5000")


def test_the_caption_says_how_far_a_run_is_that_has_not_ended(tmp_path):
    for step, ending in ((700, "CAT_cw(0.4); the run differs: step 700 of 24000"), (24000, "0.4)")):
        files.write_json_lines(tmp_path / "metrics.jsonl", [{"step": step}])
        caption, _ = published(tmp_path, mnist.get_config("cat_cw"), num_validation=0)
        assert caption.endswith(ending)


def test_numbers_at_another_radius_have_no_published_ones_beside_them(tmp_path):
    config = wrn_cifar10.get_config("fat")  # The paper's row is copied from a test at 0.031.
    assert published(tmp_path, config)[1].keys() == {"natural", "cw_inf"}


@pytest.mark.parametrize(
    "config, overrides",
    [
        (digits.get_config(), {}),
        (mnist.get_config("at"), {}),  # AT(0.4): "training loss fails to decrease", no numbers.
        (preact_cifar10.get_config("cat_cw"), {"attack.epsilon": "10/255"}),
        (preact_cifar10.get_config("cat_cw"), {"method.beta1": 0.07}),
        (preact_cifar10.get_config("a1"), {}),
        (preact_cifar100.get_config("trades"), {}),
    ],
)
def test_what_was_not_published_has_no_reference(tmp_path, config, overrides):
    assert published(tmp_path, config, **overrides)[1] == {}


NAMES = ("natural", "pgd20_unclipped")
LAST = 20  # The step of last/; that of best/ is smaller.


@pytest.fixture
def workdir(tmp_path):
    config = settings.resolve(mnist.get_config("cat_cw"))
    (tmp_path / "config.json").write_text(json.dumps(settings.as_dict(config)))
    write(tmp_path, config, ["best"])
    write(tmp_path, config, ["last"], attacked=made_lines.attacked(config, "last", LAST))
    return tmp_path


def write(workdir, config, checkpoints, names=NAMES, accuracy=0.95, *, attacked=None, **kwargs):
    """Adds lines to results.jsonl: each attack of a resolved config on each checkpoint."""
    results = [
        made_lines.result(
            attacked or made_lines.attacked(config, checkpoint), conditions, accuracy, **kwargs
        )
        for checkpoint in checkpoints
        for conditions in made_lines.conditions(config, names).values()
    ]
    lines.replace(workdir / "results.jsonl", results)


def cells(text):
    head, _, *rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in (head, *rows)]


def test_the_table_has_ours_beside_the_published_numbers(workdir, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # Narrower terminals get attacks as rows.
    text = tables.runs_table([workdir], references.of_run)
    assert cells(text) == [
        ["", "images", "natural", "pgd20_unclipped at 0.3"],
        ["best", "1000", "95.0 (±0.4)", "95.0 (±0.4)"],
        ["last", "1000", "95.0 (±0.4)", "95.0 (±0.4)"],
        ["published", "-", "99.1", "97.1"],
    ]
    assert f"{workdir.name}: cat_cw on mnist, seed 0, released conventions" in text


def test_checkpoints_with_the_same_weights_share_a_row(workdir):
    config = settings.resolve(mnist.get_config("cat_cw"))
    (workdir / "results.jsonl").unlink()
    write(workdir, config, ["best", "last"])
    rows = cells(tables.runs_table([workdir], references.of_run, width=1000))[1:]
    assert [row[0] for row in rows] == ["best = last", "published"]
    text = details.details(workdir)
    assert "| best = last natural " in text and "| last " not in text


def test_where_rows_are_too_wide_attacks_are_the_rows(workdir):
    text = tables.runs_table([workdir], references.of_run, width=50)
    assert cells(text) == [
        ["", "images", "best", "last", "published"],
        ["natural", "1000", "95.0 (±0.4)", "95.0 (±0.4)", "99.1"],
        ["pgd20_unclipped at 0.3", "1000", "95.0 (±0.4)", "95.0 (±0.4)", "97.1"],
    ]


def test_published_numbers_stand_in_rows_of_their_own_run(workdir, tmp_path):
    """Natural accuracy has no radius: another run has it under the same conditions."""
    other = tmp_path / "digits"
    other.mkdir()
    config = settings.resolve(digits.get_config())
    RunFolder(other).write_config(settings.as_dict(config), {}, "")
    write(other, config, ["best"], ["natural"], 0.9, size=360)
    grid = tables.runs_grid([workdir, other], references.of_run, width=10)
    natural = {row[1]: row[2:] for row in grid.body if row[0] == "natural"}
    assert natural == {
        "1000": ["95.0 (±0.4)", "95.0 (±0.4)", "99.1", "-"],
        "360": ["-", "-", "-", "90.0 (±0.4)"],
    }
    wide, narrow = (
        tables.runs_table([workdir, other], references.of_run, width) for width in (1000, 80)
    )
    assert wide.count("|:-") == 1 and f"| {workdir.name}, best " in wide
    assert narrow.count("|:-") == 2, "a table for each run"
    assert all(len(line) <= 80 for line in narrow.splitlines())


def test_runs_that_differ_in_the_seed_alone_are_averaged(tmp_path, capsys, monkeypatch):
    numbers = {("0.1", 0): 0.90, ("0.1", 1): 0.93, ("0.1", 5): 0.96, ("0.3", 0): 0.5}
    for (beta1, seed), accuracy in numbers.items():
        config = mnist.get_config("cat_cw")
        config.method.beta1, config.seed = float(beta1), seed
        config.data_dir, config.log_every = f"/data/{seed}", 10 + seed  # Decide nothing.
        folder = tmp_path / f"beta1_{beta1}_seed_{seed}"
        RunFolder(folder).write_config(
            settings.as_dict(resolved := settings.resolve(config)), {}, ""
        )
        names = NAMES if seed < 5 else ["natural"]
        write(folder, resolved, ["best"], names, accuracy)
    again = tmp_path / "beta1_0.1_seed_0"  # With other noise: one run counts once.
    write(again, settings.resolve(mnist.get_config("cat_cw")), ["best"], NAMES[1:], 0.9, seed=7)
    workdirs = sorted(tmp_path.iterdir())
    (grid,) = seed_means.seed_grids(workdirs)
    assert grid.head[:4] == ["first run", "seeds", "checkpoint", "images"]
    assert grid.head[4:] == ["natural", "pgd20_unclipped at 0.3"]
    assert grid.body == [["beta1_0.1_seed_0", "0, 1, 5", "best", "1000", "93.0 ± 3.0", "-"]]
    assert seed_means.seed_grids(workdirs[-2:]) == [], "beta1 differs too"
    monkeypatch.setattr(sys, "argv", ["report", *map(str, workdirs)])
    assert command.main() == 0 and "93.0 ± 3.0" in capsys.readouterr().out


def test_other_conditions_and_other_images_stand_apart(workdir):
    """And published numbers stand beside equal conditions only."""
    config = settings.resolve(mnist.get_config("cat_cw"))
    with config.unlocked():
        config.test.epsilon = type(config.test.epsilon)("0.02")
    write(workdir, config, ["best"], ["pgd20_unclipped"], 0.78)
    config.test.step_size = type(config.test.step_size)("0.001")
    write(workdir, config, ["best"], ["pgd20_unclipped"], 0.77)
    write(workdir, config, ["best"], accuracy=0.5, size=100, subset="balanced, seed 0")
    head, *rows = cells(tables.runs_table([workdir], references.of_run, width=1000))
    assert head[2:] == [
        "natural",
        "pgd20_unclipped at 0.3",
        "pgd20_unclipped at 0.02, step_size 0.015",
        "pgd20_unclipped at 0.02, step_size 0.001",
    ]
    best, last, few, published = (row[1:] for row in rows)
    assert best == ["1000", "95.0 (±0.4)", "95.0 (±0.4)", "78.0 (±0.4)", "77.0 (±0.4)"]
    assert last == ["1000", "95.0 (±0.4)", "95.0 (±0.4)", "-", "-"]
    assert few == ["100 (balanced, seed 0)", "50.0 (±0.4)", "-", "-", "50.0 (±0.4)"]
    assert published == ["-", "99.1", "97.1", "-", "-"]
    head, *rows = cells(tables.runs_table([workdir], references.of_run, width=10))
    assert [row[:3] for row in rows[:2]] == [
        ["natural", "1000", "95.0 (±0.4)"],
        ["natural", "100 (balanced, seed 0)", "50.0 (±0.4)"],
    ]


def test_weights_from_elsewhere_are_labelled_and_have_no_published_row(workdir, report_here):
    config = settings.resolve(mnist.get_config("cat_cw"))
    (workdir / "results.jsonl").unlink()
    names = ("method", "variant", "seed", "checkpoint", "conventions", "selection")
    unknown = dict.fromkeys(names) | {"file": {"name": "m4.pt", "sha256": "ab"}}
    attacked = made_lines.attacked(config, step=None, **unknown)
    write(workdir, config, ["m4.pt"], attacked=attacked)
    text = tables.runs_table([workdir], references.of_run, width=1000)
    assert [row[0] for row in cells(text)[1:]] == ["weights m4.pt (SmallCNN)"]
    assert "weights m4.pt (SmallCNN) on mnist" in text and "cat_cw" not in text
    assert report_here("--table=mnist", workdir).returncode == 0
    write(workdir, config, ["m4.pt"], accuracy=0.5, attacked=attacked | {"weights": "e" * 64})
    rows = cells(tables.runs_table([workdir], references.of_run, width=1000))[1:]
    assert [row[0].rpartition(" ")[2] for row in rows] == ["ffffffff", "eeeeeeee"]


class Terminal(io.StringIO):
    """Standard output as a terminal."""

    def isatty(self):
        return True


def test_failed_checks_are_red_and_explained_and_passed_ones_are_counted(
    workdir, report_here, monkeypatch
):
    config = settings.resolve(mnist.get_config("cat_cw"))
    names = ["finite_logits", "pgd_has_converged", "a", "b", "c"]
    findings = [Finding(name, i == 0, f"Number {i}. What to do.") for i, name in enumerate(names)]
    written = [
        result_lines.check_line(made_lines.attacked(config, checkpoint, step), images, finding, {})
        for checkpoint, step in (("best", 12), ("last", LAST))
        for finding in findings
        for images in ({"subset": "all", "epsilon": 0.3},)
    ]
    (workdir / "checks.jsonl").unlink(missing_ok=True)
    assert details.checks_summary(workdir, Terminal()) == ""
    lines.replace(workdir / "checks.jsonl", written)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    text = details.checks_summary(workdir, Terminal())
    first = "FAILED: best pgd_has_converged at 0.3, last pgd_has_converged at 0.3"
    assert text.startswith(f"\033[31m{first}\033[0m\n  Number 1. What to do.\n")
    assert "Also FAILED: c." in text and "finite_logits" not in text
    assert "8 of 10 checks FAILED" in text and f"--details {workdir}" in text
    assert "\033" not in details.checks_summary(workdir, io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033" not in details.checks_summary(workdir, Terminal())
    lines.replace(workdir / "checks.jsonl", [])
    (workdir / "checks.jsonl").unlink()
    lines.replace(workdir / "checks.jsonl", written[:1])
    assert details.checks_summary(workdir, Terminal()).startswith("All checks passed (1).")
    every = report_here("--details", workdir)
    assert every.returncode == 0 and "finite_logits at 0.3: passed. Number 0." in every.stdout


@pytest.fixture
def report_here(monkeypatch, capsys):
    """Runs `python -m cat_jax.report` in this process."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["report", *map(str, arguments)])
        capsys.readouterr()
        status = command.main()
        out, err = capsys.readouterr()
        return SimpleNamespace(returncode=status, stdout=out, stderr=err)

    return run


def report(*arguments, imports_none_of=("jax",)):
    """Runs it in a process of its own, which fails if it imports one of these."""
    code = (
        "import runpy, sys; sys.argv[0] = 'report'\n"
        "try: runpy.run_module('cat_jax.report', run_name='__main__')\n"
        f"finally: assert not {set(imports_none_of)} & sys.modules.keys()"
    )
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_prints_the_table_and_imports_neither_jax_nor_matplotlib(workdir):
    done = report(workdir, imports_none_of=("jax", "matplotlib"))
    assert done.returncode == 0 and "published" in done.stdout, done.stderr


def test_a_folder_that_is_no_run_is_refused(tmp_path, report_here):
    done = report_here(tmp_path)
    assert done.returncode == 2 and "holds no config.json" in done.stderr


def test_a_run_without_results_says_so(workdir):
    (workdir / "results.jsonl").unlink()
    assert "no results yet" in tables.runs_table([workdir], references.of_run)


@pytest.mark.slow
def test_a_table_of_the_paper_is_printed_and_written_without_jax(workdir, tmp_path):
    out = tmp_path / "out"
    done = report("--table=mnist,losses,beta1", tmp_path, f"--out={out}")
    assert done.returncode == 0, done.stderr
    # A run with 5,000 images held out is not the one that the row asks for, and says so.
    table = re.sub(" +", " ", done.stdout)
    assert "| CAT_cw(0.4) | ours, num_validation=5000, 1000 test images | 95.0 (±0.4) !-" in table
    assert "Runs done: 0 of 40" in table
    names = {path.name for path in out.iterdir()}
    kinds = ("md", "tex", "csv", "html")
    texts = {f"{name}.{kind}" for name in ("mnist", "losses", "beta1") for kind in kinds}
    figures = {f"{name}.{kind}" for name in ("mnist", "beta1") for kind in ("png", "pdf")}
    assert names == texts | figures


def test_a_damaged_file_is_one_line_and_a_bug_is_a_traceback(workdir, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["report", str(workdir)])
    with monkeypatch.context() as patch, pytest.raises(ValueError, match="of ours"):
        patch.setattr(tables, "runs_table", lambda *arguments: int("a bug of ours"))
        command.main()
    (workdir / "results.jsonl").write_text("{damaged}\n{}\n")
    assert command.main() == 2
    errors = capsys.readouterr().err
    assert "results.jsonl is damaged in line 1" in errors and errors.count("\n") == 1


def test_the_losses_need_no_folder(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["report", "--table=losses", "--runs=nowhere"])
    assert command.main() == 0 and "methods.cat" in capsys.readouterr().out


def test_the_runs_of_a_table_are_listed_with_what_is_added(report_here):
    more = "--config.data_dir=/my data"
    done = report_here("--table=mnist", "--list-runs", "--seeds=3", "--scale=0.05", more)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 8, done.stderr
    assert all(line.endswith("'--config.data_dir=/my data'") for line in lines)
    assert all("scale_0.05_seed3 --config.seed=3" in line for line in lines)


def test_status_is_printed_for_each_run_of_several_tables(capsys, monkeypatch, tmp_path):
    words = ["--table=mnist,mnist,cifar100,losses", "--status", "--seeds=0", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["report", *words])
    assert command.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.findall(r"\w+", lines[2]) == ["table", "trained", "seed", "status"]
    assert sum(line.startswith("| mnist ") for line in lines) == 8
    assert all(line.split()[-2] == "missing" for line in lines[4:])


@pytest.mark.parametrize(
    "arguments, what",
    [
        (["--table=mnits"], "Table 'mnits' is unknown; available: mnist"),
        (["--table=mnist", "--scale=5"], "--scale is 5; expected above 0 and up to 1"),
        (["--table=mnist", "--seeds=a"], "--seeds is a; expected integers"),
        (["--table=mnist", "--config.seed=1"], "--config.seed=1 is not a flag"),
        (
            ["--table=mnist", "--list-runs", "a", "b"],
            "--list-runs writes to one folder, but 2 are named",
        ),
        ([], "No run was named"),
        (["--table=mnist", "nowhere"], "The folder nowhere does not exist"),
        (["--table=mnist", "--status", "--runs=nowhere"], "The folder nowhere does not exist"),
        (["--table=losses", "--out=/proc/none"], "--out is /proc/none, where files cannot"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments, what, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["report", *arguments])
    assert command.main() == 2
    errors = capsys.readouterr().err
    assert errors.startswith("error: ") and errors.count("\n") == 1 and what in errors
