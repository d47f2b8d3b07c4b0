"""The attacks and checks of a run: names, the cascade, saved images, and a kill in between."""

import shutil

import jax
import numpy as np
import pytest
import small_runs
from jax.tree_util import Partial

from cat_jax import data, main
from cat_jax.errors import UsageError
from cat_jax.evaluation import robustness
from cat_jax.experiment import settings
from cat_jax.experiment.suites import evaluation_attacks
from cat_jax.storage import checkpoint, files
from cat_jax.training import validation

CASCADE = ["natural", "apgd_ce", "apgd_t", "fab_t", "standard"]
SHORT = {"test.num_queries": 30, "test.batch_size": 16, "test.num_examples": 40}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A workdir whose run is done, and not evaluated."""
    workdir = tmp_path_factory.mktemp("robustness") / "run"
    main.run(small_runs.config(evaluation="none"), workdir, "train")
    return workdir


@pytest.fixture
def workdir(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def names(evaluation, **overrides):
    config = settings.resolve(small_runs.config(evaluation=evaluation, **overrides))
    return [named.name for named in evaluation_attacks(config)]


def records(workdir):
    """What the evaluation keeps on disk, without the time that it took."""
    found = {}
    for file in sorted((workdir / "evaluation").glob("*.npz")):
        with np.load(file) as kept:
            found[file.name] = {name: kept[name].tolist() for name in kept if name != "seconds"}
    return found


def test_suites_and_single_attacks_can_be_joined_and_bring_what_they_follow():
    assert names("standard") == CASCADE
    assert names("none") == []
    assert names("quick") == ["natural", "pgd20"]
    paper = ["natural", "fgsm", "pgd20", "pgd100", "cw_inf", "square"]
    assert names("paper") == paper
    assert names("paper,standard") == [*paper, *CASCADE[1:]]
    assert names("pgd20,apgd_t") == ["pgd20", "natural", "apgd_ce", "apgd_t"]
    every = names("paper", **{"test.unclipped": True, "test.num_restarts": 3})
    assert every == [*paper, "pgd20_unclipped", "pgd100_unclipped", "pgd40_restarts3"]
    with pytest.raises(UsageError, match=r"'pgd40_restarts5'; available: none, quick, paper, st"):
        names("pgd40_restarts5")


@pytest.mark.parametrize(
    "writes",
    [[4], pytest.param([1, 3], marks=pytest.mark.slow)],  # An attack writes three times.
)
def test_a_killed_evaluation_goes_on_where_it_was(workdir, trained, tmp_path, capsys, writes):
    overrides = SHORT | {"evaluation": "standard"}
    whole = shutil.copytree(trained, tmp_path / "whole")
    main.run(small_runs.config(**overrides), whole, "evaluate")
    capsys.readouterr()
    for number in writes:
        dies = (
            "import os, signal\n"
            "from cat_jax import results\n"
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
    main.run(small_runs.config(**overrides), workdir, "evaluate")
    assert records(workdir) == records(whole)
    assert len(records(whole)) == len(CASCADE)
    lines = files.read_json_lines(workdir / "results.jsonl")
    assert [r["attack"] for r in lines if r["checkpoint"] == "best"] == CASCADE
    assert all(r["num_examples"] == 40 for r in lines)
    right = [round(40 * r["accuracy"]) for r in lines[:5]]
    assert [r["num_attacked"] for r in lines[:5]] == [0, *right[:-1]]


def test_a_part_of_the_test_split_does_not_replace_the_whole(workdir, capsys):
    main.run(small_runs.config(), workdir, "evaluate")
    main.run(small_runs.config(**{"test.num_examples": 40}), workdir, "evaluate")
    whole, part = (np.load(workdir / f"evaluation/step12_pgd20{n}.npz") for n in ("", "_40"))
    chosen = data.balanced(data.load("synthetic").test.labels, 40, 0)
    np.testing.assert_array_equal(part["flags"], whole["flags"][chosen], "noise is the example's")
    lines = files.read_json_lines(workdir / "results.jsonl")
    sizes = [r["num_examples"] for r in lines if r["checkpoint"] == "best"]
    assert sorted(sizes) == [40, 40, 64, 64]
    table = capsys.readouterr().out.rpartition("Accuracy in percent")[0]
    assert "64 test images" in table.splitlines()[-1], "the table shows the larger"


def test_the_report_says_what_it_cost_and_what_the_checks_found(workdir, capsys):
    overrides = SHORT | {"evaluation": "quick", "test.num_checked": 16}
    main.run(small_runs.config(**overrides), workdir, "evaluate")
    output = capsys.readouterr().out
    assert "| best pgd20   | " in output and "forward passes each" in output
    checks = files.read_json_lines(workdir / "checks.jsonl")
    of_best = [check["name"] for check in checks if check["checkpoint"] == "best"]
    assert of_best == [
        *("budget", "natural", "finite", "logits", "repeatable", "independent"),
        *("zero_gradients", "restarts", "growing_epsilon", "epsilon_one"),
    ]
    for check in checks[: len(of_best)]:
        verdict = "ok" if check["passed"] else "FAILED"
        assert f"best {check['name']}: {verdict}: {check['text']}" in output
    assert "last budget" not in output, "last/ is best/ again"


@pytest.mark.parametrize("kind, dtype", [("float32", np.float32), ("uint8", np.uint8)])
def test_saved_images_break_what_they_are_said_to_break(workdir, kind, dtype):
    overrides = {"evaluation": "pgd20,apgd_ce", "test.save_adversarial": kind}
    config = small_runs.config(**SHORT, **overrides)
    main.run(config, workdir, "evaluate")
    experiment, dataset, _ = small_runs.experiment(config)
    found = checkpoint.newest(workdir / "checkpoints" / "last")
    state = checkpoint.restore(found, jax.eval_shape(experiment.init))
    logits_fn = Partial(experiment.classifier.apply, validation.weights_of(state)[""])
    natural, broken = data.to_unit(dataset.test.images), 0
    suffix = "_uint8" if kind == "uint8" else ""
    for attack in ("pgd20", "apgd_ce"):
        file = workdir / "adversarial" / f"step12_{attack}{suffix}_40.npz"
        with np.load(file) as saved:
            images, labels, indices, right = (
                saved[name] for name in ("images", "labels", "indices", "right")
            )
        assert images.dtype == dtype and np.bincount(labels).tolist() == [4] * 10
        np.testing.assert_array_equal(labels, dataset.test.labels[indices])
        unit = data.to_unit(images)
        assert np.max(np.abs(unit - natural[indices])) <= 0.15 + 1e-6
        np.testing.assert_array_equal(logits_fn(unit).argmax(-1) == labels, right)
        broken += np.sum(~right)
    assert broken > 20
    lines = files.read_json_lines(workdir / "results.jsonl")
    assert f"apgd_ce{suffix}" in {r["attack"] for r in lines}


def test_rounding_to_8_bits_stays_in_the_ball():
    natural = np.array([0, 100, 100, 254, 7], np.uint8)
    delta = np.array([0.031, 0.031, -0.031, 0.031, -0.001])
    adversarial = np.clip(natural / 255 + delta, 0, 1)
    found = robustness.to_bytes(adversarial, natural, epsilon=0.031)
    assert found.tolist() == [7, 107, 93, 255, 7], "0.031 is 7.9 grey levels"
    found = robustness.to_bytes(np.clip(natural / 255 + 8 / 255, 0, 1), natural, epsilon=8 / 255)
    assert found.tolist() == [8, 108, 108, 255, 15] and found.dtype == np.uint8
