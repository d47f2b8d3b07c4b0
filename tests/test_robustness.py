"""The attacks and checks of a run: names, the cascade, saved images, and a kill in between."""

import json
import pathlib
import shutil

import finished_runs
import jax
import numpy as np
import pytest
import small_runs
from jax.tree_util import Partial

from cat_jax import data
from cat_jax.cli import modes
from cat_jax.errors import UsageError
from cat_jax.evaluation import checks
from cat_jax.evaluation.images import to_bytes
from cat_jax.experiment import labels, settings
from cat_jax.experiment.evaluation_attacks import evaluation_attacks
from cat_jax.experiment.suites import CURVE_SHARES, MARK_SHARES
from cat_jax.report import details, epsilon_curves
from cat_jax.storage import checkpoint, files, lines, provenance
from cat_jax.training import validation
from cat_jax.weights import export

CASCADE = ["natural", "apgd_ce", "apgd_t", "fab_t", "standard"]
EVALUATED = {"evaluation", "results.jsonl", "checks.jsonl", "masks.npz", "report.html"}
SHORT = {"test.num_queries": 30, "test.batch_size": 16, "test.num_examples": 40}


@pytest.fixture(scope="module")
def trained(finished_run, tmp_path_factory):
    """A workdir whose run is done, and not evaluated."""
    workdir = tmp_path_factory.mktemp("robustness") / "run"
    return shutil.copytree(finished_run, workdir, ignore=lambda *_: EVALUATED)


@pytest.fixture
def workdir(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def names(evaluation, **overrides):
    config = settings.resolve(small_runs.config(evaluation=evaluation, **overrides))
    return [named.name for named in evaluation_attacks(config)]


def test_a_lower_precision_of_the_search_is_stated_for_each_attack():
    config = small_runs.config(evaluation="natural,pgd20,standard")
    config.test.search_precision = "bfloat16"
    natural, *others = evaluation_attacks(settings.resolve(config))
    assert "search_precision" not in natural.conditions
    labels_of = labels.attacks([named.conditions for named in others])
    assert len(labels_of) > 3
    assert all(label.endswith("searched in bfloat16") for label in labels_of)


def records(workdir):
    """What the evaluation keeps on disk, without when and how long it was measured."""
    found = {}
    for file in sorted((workdir / "evaluation").glob("*.npz")):
        with np.load(file) as kept:
            names = set(kept) - {"seconds", "origin"}
            found[file.name] = {name: kept[name].tolist() for name in names}
    return found


def results(workdir, checkpoint="best"):
    """Lines of results.jsonl of a checkpoint."""
    lines = files.read_json_lines(workdir / "results.jsonl")
    return [line for line in lines if line["attacked"]["checkpoint"] == checkpoint]


def record(workdir, attack, **conditions):
    """The record of the only line of best/ with these conditions, and the name of its file."""
    (stem,) = [
        lines.record_stem(line)
        for line in results(workdir)
        if (conditions | {"attack": attack}).items() <= line["conditions"].items()
    ]
    with np.load(workdir / "evaluation" / f"{stem}.npz") as kept:
        return dict(kept), stem


def test_suites_and_single_attacks_can_be_joined_and_bring_what_they_follow():
    assert names("standard") == CASCADE
    alone = ["natural", "apgd_ce", "apgd_t_alone", "fab_t_alone", "square", "standard_individual"]
    assert names("standard_individual") == alone
    plus = ["plus_apgd_ce", "plus_apgd_dlr", "plus_fab", "plus_square", "plus_apgd_t", "plus"]
    assert names("plus") == ["natural", *plus]
    assert names("none") == []
    assert names("quick") == ["natural", "pgd20"]
    paper = ["natural", "fgsm", "pgd20", "pgd100", "cw_inf", "square"]
    assert names("paper") == paper
    assert names("paper,standard") == [*paper, *CASCADE[1:]]
    assert names("pgd20,apgd_t") == ["pgd20", "natural", "apgd_ce", "apgd_t"]
    every = names("paper", **{"test.unclipped": True, "test.num_restarts": 3})
    assert every == [*paper, "pgd20_unclipped", "pgd100_unclipped", "pgd40_restarts3"]
    with pytest.raises(UsageError, match=r"'pgd40_restarts5'; available: none, quick, paper, cur"):
        names("pgd40_restarts5")


def test_another_number_of_queries_is_another_name():
    few = {"test.num_queries": 1000}
    assert names("standard", **few) == [*CASCADE[:-1], "standard_q1000"]
    assert names("square", **few) == names("square_q1000", **few) == ["natural", "square_q1000"]
    alone = ["natural", "apgd_ce", "apgd_t_alone", "fab_t_alone", "square_q1000"]
    alone += ["standard_individual_q1000"]
    assert names("standard_individual", **few) == names(alone[-1], **few) == alone


def test_in_an_l2_ball_there_are_the_attacks_that_know_it():
    l2 = {"threat.norm": "l2", "threat.epsilon": "0.5", "test.epsilon": None}
    assert names("paper", **l2) == ["natural", "fgsm", "pgd20", "pgd100", "square"]
    assert names("standard", **l2) == CASCADE
    config = settings.resolve(small_runs.config(evaluation="pgd20", **l2))
    (pgd20,) = evaluation_attacks(config)
    assert (pgd20.conditions["norm"], pgd20.conditions["epsilon"]) == ("l2", 0.5)
    with pytest.raises(UsageError, match="'cw_inf'; available: none, quick, paper, curve, corr"):
        names("cw_inf", **l2)


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize(
    "evaluation, cascade, writes",  # An attack writes three times.
    [
        ("apgd_t", CASCADE[:3], [4]),
        ("standard", [*CASCADE[:-1], "standard_q30"], [1, 4]),
    ],
)
def test_a_killed_evaluation_goes_on_where_it_was(
    workdir, trained, tmp_path, evaluation, cascade, writes
):
    overrides = SHORT | {"evaluation": evaluation}
    whole = shutil.copytree(trained, tmp_path / "whole")
    modes.evaluate(small_runs.config(**overrides), whole)
    for number in writes:
        dies = (
            "import os, signal\n"
            "from cat_jax.evaluation import results\n"
            f"write, left = results.write, list(range({number}))\n"
            "def dying(*args):\n"
            "    write(*args)\n"
            "    if not left: os.kill(os.getpid(), signal.SIGKILL)\n"
            "    left.pop()\n"
            "results.write = dying\n"
        )
        flags = [f"--config.{field}={value}" for field, value in overrides.items()]
        command = ["--mode=evaluate", f"--workdir={workdir}", *flags]
        process = small_runs.command_line(*command, prelude=dies)
        _, errors = process.communicate(timeout=300)
        assert process.returncode == -9, errors
        assert records(workdir) != records(whole), "it died before the end"
    modes.evaluate(small_runs.config(**overrides), workdir)
    assert records(workdir) == records(whole)
    assert len(records(whole)) == len(cascade)
    of_best = results(workdir)
    assert [line["conditions"]["attack"] for line in of_best] == cascade
    assert all(line["conditions"]["num_examples"] == 40 for line in of_best)
    right = [round(40 * line["outcome"]["accuracy"]) for line in of_best]
    assert [line["outcome"]["num_attacked"] for line in of_best] == [0, *right[:-1]]


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_a_part_of_the_test_split_does_not_replace_the_whole(finished, capsys):
    workdir = finished
    modes.evaluate(small_runs.config(**{"test.num_examples": 40}), workdir)
    (whole, _), (part, _) = (record(workdir, "pgd20", num_examples=n) for n in (64, 40))
    chosen = data.balanced(data.load("synthetic").test.labels, 40, 0)
    np.testing.assert_array_equal(part["indices"], chosen)
    np.testing.assert_array_equal(part["flags"], whole["flags"][chosen], "noise is the example's")
    evaluations = [r["conditions"] for r in results(workdir) if not lines.is_curve(r)]
    sizes = [(c["num_examples"], c["subset"]) for c in evaluations]
    assert sizes == [(64, "all"), (64, "all"), (40, "balanced, seed 0"), (40, "balanced, seed 0")]
    output = capsys.readouterr().out
    assert "All checks passed (" in output
    shown = " ".join(details.details(workdir).split())
    assert "at 0.15 on 40 (balanced, seed 0): passed. 40 adversarial" in shown
    rows = [line for line in output.splitlines() if line.startswith("| best ")]
    assert [row.split("|")[2].strip() for row in rows[-2:]] == ["64", "40 (balanced, seed 0)"]


@pytest.mark.usefixtures("no_page")
def test_costs_and_checks_are_listed_on_demand(finished, capsys):
    """Also those of earlier evaluations."""
    modes.evaluate(finished_runs.config(), finished)
    checks = files.read_json_lines(finished / "checks.jsonl")
    printed = " ".join(capsys.readouterr().out.split())
    hint = f"List them: python -m cat_jax.report --details {finished}"
    assert f"All checks passed ({len(checks) // 2}). {hint}" in printed
    output = details.details(finished)
    assert "| best = last pgd20 at 0.15 | " in output and "passes/image" in output
    assert all(len(line) <= 100 for line in output.splitlines())
    output = " ".join(output.split())
    of_best = [
        check["conditions"]["check"]
        for check in checks
        if check["attacked"]["checkpoint"] == "best"
    ]
    assert of_best == [
        *("attacks_stay_in_ball", "attacks_lower_accuracy", "finite_logits", "finite_gradients"),
        *("outputs_are_logits", "precision_suffices", "better_than_chance", "repeatable_logits"),
        *("independent_of_batch", "nonzero_gradients", "more_starts_are_stronger"),
        *("larger_epsilon_is_stronger", "epsilon_one_fools_all"),
    ]
    for check in checks[: len(of_best)]:
        name, outcome = check["conditions"]["check"], check["outcome"]
        verdict = "passed" if outcome["passed"] else "FAILED"
        assert f"best {name} at 0.15: {verdict}. {outcome['text']}" in output
    assert "last attacks_stay" not in output, "last/ is best/ again"


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_findings_are_computed_again_only_by_other_code_or_under_other_conditions(
    workdir, monkeypatch
):
    examined = []

    def examine(logits_fn, images, *_, epsilon):
        examined.append((len(images), epsilon))
        return [checks.Finding("finite", True, f"finding {len(examined)}")]

    def findings(git_sha, **overrides):
        monkeypatch.setattr(provenance, "git_sha", lambda: git_sha)
        overrides = SHORT | {"evaluation": "natural", "test.num_checked": 16} | overrides
        modes.evaluate(small_runs.config(**overrides), workdir)
        lines = files.read_json_lines(workdir / "checks.jsonl")
        return {line["outcome"]["text"] for line in lines if "num_checked" in line["conditions"]}

    monkeypatch.setattr(checks, "examine", examine)
    assert findings("abc") == findings("abc") == {"finding 1"} and len(examined) == 1
    assert findings("def") == {"finding 2"}, "another commit replaces them"
    both = findings("def", **{"test.epsilon": "0.05"})
    assert both == {"finding 2", "finding 3"} and examined[1:] == [(16, 0.15), (16, 0.05)]
    findings("def+")
    findings("def+")
    assert len(examined) == 5, "what is not committed may be anything"


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize("kind, dtype", [("float32", np.float32), ("uint8", np.uint8)])
def test_saved_images_break_what_they_are_said_to_break(workdir, kind, dtype):
    overrides = {"evaluation": "pgd20,apgd_ce", "test.save_adversarial": kind}
    config = small_runs.config(**SHORT, **overrides)
    modes.evaluate(config, workdir)
    experiment, dataset, _ = small_runs.experiment(config)
    found = checkpoint.newest(workdir / "checkpoints" / "last")
    state = checkpoint.restore(found, jax.eval_shape(experiment.init))
    logits_fn = Partial(experiment.classifier.apply, validation.weights_of(state)[""])
    natural, broken = data.to_unit(dataset.test.images), 0
    suffix = "_uint8" if kind == "uint8" else ""
    for attack in ("pgd20", "apgd_ce"):
        kept, stem = record(workdir, f"{attack}{suffix}")
        images = np.load(workdir / "adversarial" / f"{stem}.npy")
        indices, right = kept["indices"], kept["flags"] == 1
        assert images.dtype == dtype and np.bincount(kept["labels"]).tolist() == [4] * 10
        labels = dataset.test.labels[indices]
        np.testing.assert_array_equal(kept["labels"], labels)
        unit = data.to_unit(images)
        assert np.max(np.abs(unit - natural[indices])) <= 0.15 + 1e-6
        np.testing.assert_array_equal(logits_fn(unit).argmax(-1) == labels, right)
        broken += np.sum(~right)
    assert broken > 20
    saved = sorted(path.name for path in (workdir / "adversarial").iterdir())
    assert len(saved) == 2, "each image is on the disk once"


def test_rounding_to_8_bits_stays_in_the_ball():
    natural = np.array([0, 100, 100, 254, 7], np.uint8)
    delta = np.array([0.031, 0.031, -0.031, 0.031, -0.001])
    adversarial = np.clip(natural / 255 + delta, 0, 1)
    ball = {"epsilon": 0.031}
    found = to_bytes(adversarial, natural, ball)
    assert found.tolist() == [7, 107, 93, 255, 7], "0.031 is 7.9 grey levels"
    ball = {"epsilon": 8 / 255}
    found = to_bytes(np.clip(natural / 255 + 8 / 255, 0, 1), natural, ball)
    assert found.tolist() == [8, 108, 108, 255, 15] and found.dtype == np.uint8
    with pytest.raises(UsageError, match="expected float32 for attacks in an L2 ball"):
        to_bytes(adversarial, natural, ball | {"norm": "l2"})


@pytest.mark.slow
def test_evaluations_at_two_radii_stand_beside_each_other(finished, capsys):
    """And what was measured before is neither measured nor written again."""
    first, workdir = finished_runs.config(), finished
    before = [(workdir / name).read_bytes() for name in ("results.jsonl", "checks.jsonl")]
    second = {"test.epsilon": "0.05", "test.num_checked": 16}
    modes.evaluate(small_runs.config(**second), workdir)
    both = [(workdir / name).read_bytes() for name in ("results.jsonl", "checks.jsonl")]
    assert all(
        len(new) > len(old) and new.startswith(old) for old, new in zip(before, both, strict=True)
    )
    radii = {
        line["conditions"].get("epsilon") for line in results(workdir) if not lines.is_curve(line)
    }
    assert radii == {None, 0.15, 0.05}
    capsys.readouterr()
    modes.evaluate(first, workdir)
    assert both == [(workdir / name).read_bytes() for name in ("results.jsonl", "checks.jsonl")]
    table = capsys.readouterr().out
    page = (workdir / "report.html").read_text()
    assert "natural |" in table
    for label in ("pgd20 at 0.15", "pgd20 at 0.05"):
        assert label in table and label in page
    for fingerprint in {line["outcome"]["config"] for line in results(workdir)}:
        config = json.loads((workdir / "evaluation" / f"{fingerprint}.json").read_text())
        assert config["test"]["epsilon"] in (0.15, 0.05)
    assert export.main([f"--workdir={workdir}", "--format=safetensors"]) == 0
    card = pathlib.Path(capsys.readouterr().out.split()[-1]).read_text()
    for line in results(workdir):
        conditions, accuracy = line["conditions"], line["outcome"]["accuracy"]
        if conditions["attack"] == "pgd20":
            row = (
                f"| pgd20 | L-infinity {conditions['epsilon']:g} | {labels.settings(conditions)} |"
            )
            assert f"{row} {100 * accuracy:.1f} |" in card


def test_a_curve_is_drawn_from_its_lines(finished_run):
    workdir = finished_run
    for attack, shares in ((lines.CURVE, CURVE_SHARES), (lines.MARKS, MARK_SHARES)):
        points = [line for line in results(workdir) if line["conditions"]["attack"] == attack]
        assert [line["conditions"]["epsilon"] / 0.15 for line in points] == pytest.approx(shares)
    (curve,) = epsilon_curves.curves(lines.newest(files.read_json_lines(workdir / "results.jsonl")))
    assert curve.name == "best = last" and len(curve.points) == len(CURVE_SHARES)
    assert len(curve.marks) == len(MARK_SHARES)
    accuracies = [point.accuracy for point in curve.points]
    natural = next(line for line in results(workdir) if line["conditions"]["attack"] == "natural")
    assert accuracies == sorted(accuracies, reverse=True) and accuracies[-1] < accuracies[0]
    assert accuracies[0] == natural["outcome"]["accuracy"]
    assert all(point.low <= point.accuracy <= point.high for point in curve.points)
    page = (workdir / "report.html").read_text()
    assert 'alt="Accuracy against epsilon"' in page and curve.comparison in page


def test_the_report_names_the_attack_that_is_weaker_at_a_radius():
    points = [epsilon_curves.Point(*numbers, 0.0, 1.0) for numbers in ((0.1, 0.7), (0.2, 0.5))]

    def comparison(*accuracies):
        marks = (p._replace(accuracy=a) for p, a in zip(points, accuracies, strict=True))
        return epsilon_curves.Curve("best", tuple(points), tuple(marks), {}).comparison

    assert comparison(0.68, 0.52) == "best: FMN and APGD agree within 2 points."
    assert comparison(0.7, 0.479) == ("best: FMN is weaker at 0.2 (FMN leaves 50.0%, APGD 47.9%).")
    assert comparison(0.73, 0.4) == (
        "best: APGD is weaker at 0.1 (FMN leaves 70.0%, APGD 73.0%); "
        "FMN is weaker at 0.2 (FMN leaves 50.0%, APGD 40.0%)."
    )
    without_marks = epsilon_curves.Curve("best", tuple(points), (), {})
    assert without_marks.comparison == ""


@pytest.mark.usefixtures("no_page")
def test_keeping_images_changes_no_result(finished):
    workdir, before = finished, results(finished)
    modes.evaluate(small_runs.config(**{"test.save_adversarial": "float32"}), workdir)
    after = results(workdir)
    assert [lines.key(line) for line in after] == [lines.key(line) for line in before]
    assert [r["outcome"]["accuracy"] for r in after] == [r["outcome"]["accuracy"] for r in before]
