"""Every table of the paper as data: its runs resolve and parse, and made-up results are printed."""

import csv
import importlib
import io
import itertools
import math
import shlex
import sys

import jax
import numpy as np
import pytest
from absl import flags
from config_files import SPECS
from matplotlib.backends.backend_agg import FigureCanvasAgg
from paper_runs import ACCURACIES, CAT_CENT, CAT_CW, make, write_lines
from slow_cases import all_slow_but

from cat_jax import data
from cat_jax.cli import command_line
from cat_jax.experiment import settings
from cat_jax.experiment.experiment import build_experiment
from cat_jax.experiment.fields import FIELDS, TRAINING
from cat_jax.paper import (
    bars,
    catalogue,
    cells,
    commands,
    figures,
    measured,
    output,
    progress,
    published_numbers,
    runs,
    sheet,
    texts,
)
from cat_jax.paper.catalogue import TABLES
from cat_jax.paper.measured import Number
from cat_jax.paper.nearest import LENGTH
from cat_jax.paper.published_numbers import Published
from cat_jax.paper.query import Query
from cat_jax.report import grids, render
from cat_jax.report.__main__ import NAMES
from cat_jax.storage.files import read_json_lines

ROWS = [(table, row) for table in TABLES.values() for row in table.rows]
NOTHING = Query([])


def test_the_configs_decide_how_long_a_run_is():
    for _, row in ROWS:
        config = row.resolved()
        num_train = SPECS[row.file].num_train - config.num_validation
        steps = data.Clock(num_train, config.batch_size).steps_until(config.num_epochs)
        assert row.total_steps(row.config()) == steps, row.label
        assert commands.length(row, 1.0) == (config.num_epochs, 0)


KINDS = {(row.file, row.variant): row for _, row in ROWS}
ONE_OF_EACH_CONFIG = {file: (file, variant) for file, variant in KINDS}.values()


@pytest.mark.parametrize("kind", all_slow_but(ONE_OF_EACH_CONFIG, KINDS), ids=":".join)
def test_every_row_builds(kind):
    """Weights, seeds and radii change no shape: one row of each config and variant."""
    made = build_experiment(KINDS[kind].resolved(), SPECS[kind[0]], jax.local_devices()[:1])
    state = jax.eval_shape(made.init)
    assert state.step.shape == ()


def test_published_numbers_are_all_printed_and_no_row_is_doubled():
    for table in TABLES.values():
        labels = [row.label for row in table.rows]
        assert len(set(labels)) == len(labels)
        names = {(row.table or table.name, row.published or row.label) for row in table.rows}
        known = {k[3] for k in published_numbers.numbers() if k[0] == table.name}
        assert known <= {name for place, name in names if place == table.name}, table.name
    white = TABLES["cifar10_preact_resnet18"]
    printed = published_numbers.of_row(white.rows[4], white)
    assert printed["natural"] == (84.1, 0.3) and printed["average"].mean == pytest.approx(60.98)


def parsed(argv, monkeypatch):
    """The config that main's parser makes of a command line."""
    defined = flags.FLAGS
    for name in [name for name in defined if name.startswith("config.")]:
        delattr(defined, name)
    defined.unparse_flags()
    monkeypatch.setattr(
        sys, "argv", command_line.find_config(argv)
    )  # Where overrides are looked for.
    assert len(command_line.parse(argv)) == 1
    return command_line.CONFIG.value


@pytest.fixture
def flags_as_before():
    yield
    for name in [name for name in flags.FLAGS if name.startswith("config.")]:
        delattr(flags.FLAGS, name)
    flags.FLAGS.unparse_flags()


# ml_collections loads config files in a way that Python 3.12 deprecates.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")
@pytest.mark.parametrize("scale", [1.0, 0.05, 0.001])
def test_every_command_is_understood(scale, monkeypatch, flags_as_before):
    """Of all tables, whole and scaled, each with the config and the seed of its row."""
    query = Query([], "run s", None, scale)
    lines = progress.launched(TABLES.values(), query, ["--config.log_every=7"], False)
    assert len(lines) == len(set(lines)) > 100
    workdirs = [shlex.split(line)[4] for line in lines]
    assert len(set(workdirs)) == len(lines), "each has a folder of its own"
    for line in lines:
        assert line.startswith("python -m cat_jax.main --config=cat_jax:")
        argv = shlex.split(line)[2:]
        config = settings.resolve(parsed(argv, monkeypatch))
        assert config.log_every == 7 and f"--config.seed={config.seed}" in argv
        assert argv[2].startswith("--workdir=run s/")
        assert ("scale_" in argv[2]) == (scale != 1)
        assert list(config.optimizer.drop_epochs) == sorted(set(config.optimizer.drop_epochs))


def scaled(row, scale):
    return row.resolved(commands.overrides(row, scale))


def test_a_scaled_command_shortens_epochs_drops_and_the_test():
    row = TABLES["cifar10_preact_resnet18"].rows[3]
    config = scaled(row, 0.1)
    assert (row.variant, config.num_epochs) == ("fat", 8)
    assert config.optimizer.drop_epochs == (6, 8)
    assert config.attack.tau_epochs == (2, 4, 6) and config.test.num_examples == 1000
    assert commands.overrides(row) == row.overrides == {}


def test_less_than_an_epoch_is_counted_in_steps(tmp_path):
    config = scaled(CAT_CW, 0.0125)
    assert (config.num_epochs, config.num_steps) == (1, 300), "half an epoch of 600 steps"
    assert scaled(CAT_CW, 0.025).num_steps == 0
    make(tmp_path, CAT_CW, 0, scale=0.0125)
    make(tmp_path, CAT_CW, 0, num_steps=300)  # Of another schedule.
    body, text = printed("mnist", tmp_path, scale=0.0125)
    assert body["CAT_cw(0.4)", "ours, 300 steps, 125 test images"][0].startswith("99.0")
    assert "SCALED: 0.0125" in text and "Runs done: 1 of 40" in text


def printed(name, folder, seeds=None, scale=1.0):
    """The body of a table, as {(trained, whose): cells}, and the whole text."""
    query = Query(runs.find(folder), "runs", seeds, scale)
    grid = output.build(name, query)
    assert set(map(len, grid.body)) == {len(grid.head)}
    return {(row[0], row[1]): list(row[2:]) for row in grid.body}, output.text(grid)


def test_three_seeds_are_a_mean_with_its_spread(tmp_path):
    for seed, shift in enumerate((0.0, 0.01, 0.02)):
        shifted = {name: share - shift for name, share in ACCURACIES.items()}
        make(tmp_path, CAT_CW, seed, accuracies=shifted)
    make(tmp_path, CAT_CENT, 0, accuracies=ACCURACIES | {"natural": 0.9})
    body, text = printed("mnist", tmp_path)
    assert body["CAT_cw(0.4)", "ours"] == [
        *("98.0 ± 1.0 !-", "96.1 ± 1.0", "95.2 ± 1.0", "10000", "3"),
    ]
    assert body["CAT_cw(0.4)", "published"] == ["99.1", "97.1", "96.2", "-", "-"]
    assert body["CAT_cent(0.4)", "ours"][0] == "90.0 (±0.4) !-", "one seed, far below 99.2"
    assert body["CAT_cent(0.4)", "ours"][1] == "97.1 (±0.4)", "96.8 is within the interval"
    assert body["AT(0.3)", "ours"] == ["no run"] * 3 + ["-", "-"]
    assert "50.0" not in text, "clipped PGD is never beside the unclipped one"
    assert "seeds 0, 1, 2" in text and "released conventions" in text
    assert "Runs done: 4 of 40 in runs." in text
    body, text = printed("mnist", tmp_path, seeds=(1,))
    assert body["CAT_cw(0.4)", "ours"][-2:] == ["10000", "1"] and "Runs done: 1 of 8" in text


def test_better_and_worse_need_more_than_chance():
    cell = cells.over_seeds([Number(0.90, 0.005, 1000), Number(0.92, 0.005, 1000)])
    assert (cell.mean, cell.half) == (pytest.approx(91.0), pytest.approx(0.5))
    assert cell.tolerance() == pytest.approx(math.hypot(math.sqrt(2), 0.5))
    known = Published
    assert cells.mark(cell, None) == cells.mark(cell, known(92.4, None)) == ""
    assert cells.mark(cell, known(92.6, None)) == cells.WORSE
    assert cells.mark(cell, known(92.6, 1.0)) == "", "their spread counts too"
    assert cells.mark(cell, known(89.0, 0.1)) == cells.BETTER


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_folder_prints_what_was_published_and_what_is_missing(tmp_path, name):
    _, text = printed(name, tmp_path / "none")
    if name in TABLES:
        total = sum(len(row.seeds) for row in TABLES[name].rows)
        assert "no run" in text and f"Runs done: 0 of {total}" in text
    status = progress.status_grid([TABLES[name]] if name in TABLES else [], NOTHING)
    assert {row[-1] for row in status.body} <= {"missing"}


def test_half_finished_runs_say_how_far_they_are(tmp_path):
    make(tmp_path, CAT_CW, 0, accuracies={}, steps=700)
    make(tmp_path, CAT_CW, 1, accuracies={})
    make(tmp_path, CAT_CW, 2, accuracies={"natural": 0.99})
    body, text = printed("mnist", tmp_path)
    assert body["CAT_cw(0.4)", "ours"] == ["99.0 (±0.4)", "-", "-", "10000", "1 of 2"]
    assert "CAT_cw(0.4) seed 0: in progress, step 700 of 24000." in text
    assert "Without numbers" not in text
    assert "seed 1: trained, not evaluated: natural, pgd20_unclipped, pgd100_unclipped." in text
    assert "seed 2: trained, not evaluated: pgd20_unclipped, pgd100_unclipped." in text
    query = Query(runs.find(tmp_path), "runs", (2, 3))
    left = progress.launched([TABLES["mnist"]], query, [], True)
    assert len(left) == 16
    make(tmp_path, CAT_CW, 3)
    query = Query(runs.find(tmp_path), "runs", (2, 3))
    assert len(progress.launched([TABLES["mnist"]], query, [], True)) == 15


def test_numbers_of_a_run_that_has_not_ended_are_not_averaged_with_those_of_others(tmp_path):
    make(tmp_path, CAT_CW, 0)
    make(tmp_path, CAT_CW, 1, accuracies=ACCURACIES | {"natural": 0.9}, steps=700)
    body, text = printed("mnist", tmp_path)
    assert body["CAT_cw(0.4)", "ours"][0] == "99.0 (±0.4)"
    assert body["CAT_cw(0.4)", "ours, step 700 of 24000"][0].startswith("90.0 (")
    assert "CAT_cw(0.4) seed 1: in progress, step 700 of 24000." in text
    drawn = figures.ours(CAT_CW, TABLES["mnist"], Query(runs.find(tmp_path)))
    assert drawn["natural"].mean == pytest.approx(99.0)
    assert figures.ours(CAT_CW, TABLES["mnist"], Query(runs.find(tmp_path), seeds=(1,))) == {}


def test_a_diverged_seed_is_named_and_not_averaged(tmp_path):
    for seed in (0, 1):
        make(tmp_path, CAT_CW, seed)
    workdir = make(tmp_path, CAT_CW, 2, accuracies=ACCURACIES | {"natural": 0.1}, steps=300)
    write_lines(workdir / "metrics.jsonl", [{"step": 300, "classifier_loss": math.nan}])
    never = make(tmp_path, CAT_CW, 3, accuracies={}, steps=20)
    write_lines(never / "metrics.jsonl", [{"step": 20, "mask_loss": math.inf}])
    body, text = printed("mnist", tmp_path)
    assert body["CAT_cw(0.4)", "ours"][0] == "99.0 ± 0.0"
    assert body["CAT_cw(0.4)", "ours"][-1] == "2 of 4"
    assert "seed 2: diverged: classifier_loss is nan at step 300 of 24000." in text
    assert "seed 3: diverged: mask_loss is inf at step 20 of 24000." in text


def test_runs_of_other_conventions_lengths_and_choices_stand_apart(tmp_path):
    make(tmp_path, CAT_CW, 0)
    make(tmp_path, CAT_CW, 0, conventions="paper")
    make(tmp_path, CAT_CW, 0, num_validation=5000, selection="test")
    make(tmp_path, CAT_CW, 0, num_steps=500)
    make(tmp_path, CAT_CW, 0, scale=0.05)
    make(tmp_path, CAT_CW, 0, **{"test.num_examples": 500})
    make(tmp_path, CAT_CW, 4, conventions="paper", accuracies={})
    body, text = printed("mnist", tmp_path)
    ours = [whose for label, whose in body if label == "CAT_cw(0.4)"]
    assert ours == [
        "ours",
        "ours, 500 steps",
        "ours, 500 test images",
        "ours, conventions=paper",
        "ours, 2 of 40 epochs, 500 test images",
        "ours, num_validation=5000, selection=test",
        "published",
    ]
    assert "Runs done: 1 of 40" in text
    assert "Without numbers here: 1 with conventions=paper." in text
    body, text = printed("mnist", tmp_path, scale=0.05)
    ours = [whose for label, whose in body if label == "CAT_cw(0.4)"]
    assert ours == ["ours, 2 of 40 epochs, 500 test images", "published"]
    assert "SCALED: 0.05" in text and "Runs done: 1 of 40" in text
    assert body["AT(0.3)", "ours"][0] == "no run"


def test_a_run_is_known_by_its_complete_config(tmp_path):
    """A field that affects no number is not looked at; each other one that differs is named."""
    nothing = {"log_every": 7, "parallel": "shard_map", "test.save_adversarial": "float32"}
    make(tmp_path, CAT_CW, 0)
    make(tmp_path, CAT_CW, 1, **nothing)
    make(tmp_path, CAT_CW, 2, **{"attack.num_steps": 5})
    make(tmp_path, CAT_CW, 3, precision="bfloat16", scale=0.05, **{"method.beta1": 0.1})
    make(tmp_path, CAT_CENT, 0, **{"attack.loss": "margin"})  # Another name for what CAT_cw trains.
    body, text = printed("mnist", tmp_path)
    assert {whose: body[label, whose][-1] for label, whose in body if label == "CAT_cw(0.4)"} == {
        "ours": "2",
        "ours, attack.num_steps=5": "1",
        "ours, 2 of 40 epochs, precision=bfloat16, method.beta1=0.1, 500 test images": "1",
        "published": "-",
    }
    assert ("CAT_cent(0.4)", "ours, attack.loss=margin") in body
    assert "Runs done: 2 of 40" in text and "belong to no row" not in text


@pytest.mark.parametrize("path", [p for p in FIELDS if FIELDS[p].affects & TRAINING])
def test_a_run_that_differs_in_any_field_of_training_is_not_as_its_row(path, tmp_path):
    """Each field in turn has a value that the row has not; its name is then in the label."""
    config = dict(CAT_CW.config()) | {path: another(path, CAT_CW.config()[path])}
    run = measured.Run(tmp_path, config, [], [], [], [])
    query = Query([run])
    assert [run.seed for run in query.runs] == [config["seed"]]
    if path == "seed":
        assert [match.run.seed for match in query.exact(CAT_CW)] == [config["seed"]]
        return
    assert query.exact(CAT_CW) == []
    for match in query.of(CAT_CW):
        assert match.nearest.length if path in LENGTH else path in match.nearest.changes
    assert query.of(CAT_CW) or query.matches.others == [run]


def another(path, value):
    """A value of a field that is not this one, of the same type."""
    if choices := FIELDS[path].limit.choices:
        return next(choice for choice in choices if choice != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        return (*value, "l2:0.5" if path == "attack.union" else 200)
    if isinstance(value, float):
        return value + (-0.05 if 0.9 < value < 1 else 0.05)
    return value + 1 if isinstance(value, int) else "x"


def test_runs_that_belong_to_no_row_are_counted(tmp_path):
    make(tmp_path, CAT_CW, 0)
    make(tmp_path, CAT_CW, 0, **{"attack.epsilon": "0.35"})  # As near to 0.3 as to 0.4.
    make(tmp_path, TABLES["beta"].rows[0])
    body, text = printed("mnist", tmp_path)
    assert body["CAT_cw(0.4)", "ours"][-1] == "1"
    assert text.endswith("2 of 3 runs belong to no row here; without a row in the paper: run1.")
    grid = progress.status_grid([TABLES["beta"]], Query(runs.find(tmp_path)))
    assert grid.notes == ["2 of 3 runs belong to no row here; without a row in the paper: run1."]


def test_a_damaged_run_is_named_and_a_folder_of_another_program_is_none(tmp_path, caplog):
    make(tmp_path, CAT_CW, 0)
    (make(tmp_path, CAT_CW, 1) / "results.jsonl").write_text("{damaged}\n{}\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"model": "bert"}')
    body, _ = printed("mnist", tmp_path)
    assert body["CAT_cw(0.4)", "ours"][-1] == "1"
    assert [record.message.split(":")[0] for record in caplog.records] == [
        f"{tmp_path / 'other'} is left out",
        f"{tmp_path / 'run1'} is left out",
    ]


def test_a_part_of_the_test_images_is_not_the_end(tmp_path):
    make(tmp_path, CAT_CW, 0, **{"test.num_examples": 500})
    body, text = printed("mnist", tmp_path)
    assert body["CAT_cw(0.4)", "ours, 500 test images"][-2:] == ["500", "1"]
    assert "Runs done: 0 of 40" in text and "evaluated in part: 500 test images." in text


def test_numbers_of_different_subsets_never_share_a_line(tmp_path):
    size = {"test.num_examples": 500}
    make(tmp_path, CAT_CW, 0, **size)
    make(tmp_path, CAT_CW, 1, **size)
    make(tmp_path, CAT_CW, 2, **size, **{"test.subset_seed": 3})
    body, _ = printed("mnist", tmp_path)
    assert body["CAT_cw(0.4)", "ours, 500 test images"][-1] == "2"
    assert body["CAT_cw(0.4)", "ours, 500 test images (balanced, seed 3)"][-1] == "1"


def test_results_under_other_conditions_are_not_the_rows(tmp_path):
    """A test at another radius trains the same network: the run is the row's, its numbers not."""
    make(tmp_path, CAT_CW, 0, **{"test.epsilon": "0.02"})
    body, text = printed("mnist", tmp_path)
    assert body["CAT_cw(0.4)", "ours"] == ["99.0 (±0.4)", "-", "-", "10000", "1"]
    assert "trained, not evaluated: pgd20_unclipped, pgd100_unclipped." in text


def test_weights_from_elsewhere_stand_in_no_row(tmp_path):
    """Not even where the config that they were evaluated with is a row's."""
    workdir = make(tmp_path, CAT_CW, 0)
    (workdir / "metrics.jsonl").unlink()
    lines = read_json_lines(workdir / "results.jsonl")
    unknown = dict.fromkeys(("checkpoint", "step", "variant", "seed"))
    unknown |= {"file": {"name": "m4.pt", "sha256": "ab"}}
    foreign = [line | {"attacked": line["attacked"] | unknown} for line in lines]
    write_lines(workdir / "results.jsonl", foreign)
    body, text = printed("mnist", tmp_path)
    assert body["CAT_cw(0.4)", "ours"] == ["no run"] * 3 + ["-", "-"]
    assert text.endswith("1 of 1 runs belong to no row here; without a row in the paper: run0.")


def test_a_table_of_curves_reads_the_validations(tmp_path):
    table = TABLES["ablation_components"]
    workdir = make(tmp_path, table.rows[2], accuracies={})
    points = [(1.0, 0.7, 0.4), (2.0, 0.8, 0.5), (140.0, 0.85, 0.3)]
    lines = [
        {"step": 391 * int(epoch), "epoch": epoch, "validation_natural": natural}
        | {"validation_robust": robust}
        for epoch, natural, robust in points
    ]
    total = 50 * 1000 * 140 // 128
    write_lines(workdir / "metrics.jsonl", [*lines, {"step": total}])
    body, _ = printed("ablation_components", tmp_path)
    ours = body["CAT(beta1=0.05)", "ours"]
    assert [cell.split()[0] for cell in ours] == ["80.0", "50.0", "130.0", "10000", "1"]
    assert "CE(beta1=0.05)" in {label for label, _ in printed("ablation_losses", tmp_path)[0]}
    assert printed("ablation_losses", tmp_path)[0]["CE(beta1=0.05)", "ours"] == ours


def test_one_run_serves_every_table_that_it_is_in(tmp_path):
    row = TABLES["beta"].rows[0]
    accuracies = {"natural": 0.84, "fgsm": 0.6, "pgd20": 0.55, "pgd100": 0.54, "cw_inf": 0.5}
    make(tmp_path, row, accuracies=accuracies | {"square": 0.56})
    query = Query(runs.find(tmp_path))
    tables = {table.name for table, row in ROWS if query.exact(row)}
    assert tables >= {"beta", "beta1", "cifar10_preact_resnet18", "black_box", "adaptation"}
    body, _ = printed("cifar10_preact_resnet18", tmp_path)
    assert body["CAT_cent(beta1=0.05)", "ours"][5].startswith("60.6")


def braces(tex):
    bare = tex.replace("\\\\", "").replace(r"\{", "").replace(r"\}", "")
    depth = list(itertools.accumulate({"{": 1, "}": -1}.get(sign, 0) for sign in bare))
    return min(depth) >= 0 and depth[-1] == 0


@pytest.mark.parametrize("name", NAMES)
def test_latex_is_balanced_and_escaped(name):
    tex = grids.latex(output.build(name, NOTHING))
    assert braces(tex)
    rows = [line for line in tex.splitlines() if line.endswith(r"\\")]
    head = output.build(name, NOTHING).head
    assert len(rows) == 1 + len(output.build(name, NOTHING).body)
    for row in rows:
        assert row.replace(r"\&", "").count("&") == len(head) - 1, row
    for line in tex.splitlines():
        outside = "".join(line.split("$")[::2])  # What is mathematics may have its underscores.
        for sign in "%_#":
            assert sign not in outside.replace(f"\\{sign}", ""), line


def test_signs_of_latex_are_escaped():
    assert render.escape_latex("5% of a_b & c ± 1") == r"5\% of a\_b \& c $\pm$ 1"
    assert render.escape_latex(r"\x{}") == r"\textbackslash{}x\{\}"
    assert render.escape_latex("$a_1$") == "$a_1$"


def test_the_csv_has_a_line_for_each_number(tmp_path):
    make(tmp_path, CAT_CW, 0)
    text = sheet.as_csv(TABLES["mnist"], Query(runs.find(tmp_path)))
    lines = list(csv.DictReader(io.StringIO(text)))
    assert len(lines) == 3 * len(TABLES["mnist"].rows)
    ours = {line["metric"]: line for line in lines if line["row"] == "CAT_cw(0.4)"}
    assert (
        ours["natural"] | {"mean": "99", "published": "99.1", "images": "10000"}
        == (ours["natural"])
    )
    assert ours["natural"]["whose"] == "ours" and ours["natural"]["std"] == ""


@pytest.mark.slow
def test_figures_are_written_and_labelled(tmp_path):
    row = TABLES["beta1"].rows[3]
    make(tmp_path / "runs", row, accuracies={"natural": 0.86, "pgd20": 0.54})
    images = {view: np.full((10, 28, 28, 1), 0.5) for view in ("natural", "adversarial")}
    images |= {view: np.full((10, 28, 28, 1), 0.2) for view in ("mask", "calibrated")}
    workdir = make(tmp_path / "runs", CAT_CENT)
    np.savez(workdir / "masks.npz", digit=0.2, background=0.8, num_examples=1000, **images)
    other = {"conventions": "paper", "selection": "validation", "num_validation": 500}
    workdir = make(tmp_path / "runs", TABLES["curves"].rows[2], accuracies={}, **other)
    line = {"step": 1, "epoch": 1.0, "validation_natural": 0.8, "validation_robust": 0.5}
    write_lines(workdir / "metrics.jsonl", [line])  # Its name in the legend is long.
    workdir = make(tmp_path / "runs", TABLES["curves"].rows[-1], accuracies={})
    write_lines(workdir / "metrics.jsonl", [line])
    query = Query(runs.find(tmp_path / "runs"))
    for name in ("beta", "beta1", "mask_visualisation", "curves", "adaptation"):
        figure = output.draw(name, query)
        for axes in figure.axes if name != "mask_visualisation" else ():
            assert axes.get_xlabel() and axes.get_ylabel()
    output.show("mask_visualisation", query, tmp_path / "out")
    kinds = {path.suffix for path in (tmp_path / "out").iterdir()}
    assert kinds == {".md", ".tex", ".csv", ".png", ".pdf", ".html"}
    page = (tmp_path / "out" / "mask_visualisation.md").read_text()
    assert page.startswith("# Figure 2: ") and page.endswith("](mask_visualisation.png)\n")
    body, _ = printed("mask_visualisation", tmp_path / "runs")
    assert body["CAT_cent(0.4)", "ours"] == ["20.0", "80.0", "1000", "1"]
    labels = output.draw("beta1", query).axes[0].get_legend_handles_labels()[1]
    assert labels == ["natural - 80", "PGD-20 - 50", "natural + PGD-20 - 130", "ours", "published"]
    scaled = Query([], scale=0.1)
    assert "SCALED" in output.draw("larger_epsilon", scaled).get_suptitle()


def test_bars_are_ours_and_dashes_of_the_same_colour_are_published(tmp_path):
    table = TABLES["mnist"]
    for seed, shift in enumerate((0.0, 0.02)):
        make(tmp_path, CAT_CW, seed, accuracies={n: a - shift for n, a in ACCURACIES.items()})
    make(tmp_path, CAT_CENT, 0, num_steps=500)  # Not as the row has it.
    axes = bars.draw(table, Query(runs.find(tmp_path))).axes[0]
    names = [text.get_text() for text in axes.get_xticklabels()]
    assert names == [row.label for row in table.rows]
    natural, *_ = axes.containers[1::2]  # Every other one is error bars.
    heights = dict(zip(names, (bar.get_height() for bar in natural), strict=True))
    assert heights.pop("CAT_cw(0.4)") == pytest.approx(98.0)
    assert all(map(math.isnan, heights.values()))
    segment = natural.errorbar.lines[2][0].get_segments()[-1]
    assert segment[:, 1] == pytest.approx([98 - math.sqrt(2), 98 + math.sqrt(2)])
    (dashes,) = (c for c in axes.collections if c.get_gid() == "published natural")
    ((left, right),) = (s for s in dashes.get_segments() if len(s) and s[0][0] > 6.5)
    bar = natural[-1]
    assert tuple(dashes.get_color()[0]) == bar.get_facecolor()
    legend = [text.get_text() for text in axes.figure.legends[0].get_texts()]
    assert legend == ["natural", "PGD-20 unclipped", "PGD-100 unclipped", "published"]
    assert left[0] == pytest.approx(bar.get_center()[0] - (right[0] - left[0]) / 2)
    assert left[1] == right[1] == 99.1
    assert "percent" in axes.get_ylabel() and axes.get_xlabel()
    scaled = bars.draw(table, Query([], scale=0.05))
    assert "SCALED: 0.05" in scaled.get_suptitle()
    masks = output.draw("mask_visualisation", Query([], scale=0.05))
    assert masks.get_suptitle().endswith("\nno run")
    for figure in (scaled, masks):
        drawn = FigureCanvasAgg(figure)
        drawn.draw()
        title = figure.texts[0].get_window_extent(drawn.get_renderer())
        assert 0 < title.x0 and title.x1 < figure.bbox.x1, "it fits the figure"


def test_the_tradeoff_is_a_point_for_each_row_and_whose(tmp_path):
    table = TABLES["trades_tradeoff"]
    make(tmp_path, table.rows[1], accuracies={"natural": 0.88, "pgd20": 0.47})
    figure = output.draw(table.name, Query(runs.find(tmp_path)))
    handles, labels = figure.axes[0].get_legend_handles_labels()
    found = {
        label: handle.lines[0].get_xydata()[0]
        for handle, label in zip(handles, labels, strict=True)
    }
    assert found.keys() == {
        *("CAT_cw(beta1=0.3), published", "TRADES(beta=1), published", "TRADES(beta=1)"),
    }
    assert found["TRADES(beta=1)"] == pytest.approx([88, 47])
    known = published_numbers.of_row(table.rows[0], table)
    expected = [known["natural"].mean, known["pgd20"].mean]
    assert found["CAT_cw(beta1=0.3), published"] == pytest.approx(expected)


def test_the_table_of_losses_names_methods_that_there_are():
    lines = grids.markdown(texts.losses()).splitlines()
    assert {line.count("|") for line in lines if line.startswith("|")} == {4}
    methods = importlib.import_module("cat_jax.methods")
    for _, _, name in texts.LOSSES:
        assert hasattr(methods, name)
    assert catalogue.TABLES.keys() | {"losses"} == set(NAMES)
