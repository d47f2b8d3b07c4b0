"""Lines of results: their keys, and which of them replaces which."""

import json
import pathlib
import types

import made_lines
import numpy as np
import pytest
import small_runs

from cat_jax import data
from cat_jax.configs import digits
from cat_jax.evaluation import result_lines
from cat_jax.evaluation.budget import attacks_stay_in_ball
from cat_jax.evaluation.checks.findings import Finding
from cat_jax.evaluation.results import Result
from cat_jax.experiment import settings
from cat_jax.experiment.evaluation_attacks import evaluation_attacks
from cat_jax.experiment.fields import EVALUATION, FIELDS, NOTHING
from cat_jax.experiment.network import build_networks
from cat_jax.storage import files, lines
from cat_jax.storage.checkpoint import Checkpoint
from cat_jax.storage.run_folder import RunFolder

SPEC = data.Spec((32, 32, 3), 10, 100)
WIDE = {
    "classifier.name": "WideResNet",
    "classifier.mean": (0.5,) * 3,
    "classifier.std": (0.2,) * 3,
}
PREACT = {"classifier.name": "PreActResNet18"}
# Another value of each field that an evaluation depends on.
OTHERS = {
    "seed": 1,
    "dataset": "synthetic",
    "classifier.name": "PreActResNet18",
    "classifier.mean": (0.4,) * 3,
    "classifier.std": (0.3,) * 3,
    "classifier.depth": 10,
    "classifier.widen_factor": 2,
    "classifier.activation": "silu",
    "classifier.shortcut": "input",
    "classifier.last_norm": False,
    "classifier.head": "cosine",
    "classifier.normalize": False,
    "test.norm": "l2",
    "test.epsilon": "0.05",
    "test.step_size": "0.001",
    "test.cw_epsilon": "0.05",
    "test.cw_kappa": 5.0,
    "test.cw_random_start": False,
    "test.num_queries": 1000,
    "test.num_examples": 40,
    "test.subset_seed": 1,
    "test.search_precision": "bfloat16",
}
# These choose the attacks that are run, and change the result of none.
CHOOSING = {"evaluation", "test.unclipped", "test.num_restarts"}


def keys(**overrides):
    """The keys of all lines that an evaluation writes."""
    config = digits.get_config()
    config.update_from_flattened_dict({"evaluation": "paper,standard", "test.num_examples": 50})
    config.update_from_flattened_dict(WIDE | overrides)
    resolved = settings.resolve(config)
    experiment = types.SimpleNamespace(
        config=resolved, classifier=build_networks(resolved, SPEC)[0]
    )
    dataset = types.SimpleNamespace(fingerprint=resolved.dataset * 12)
    saved = Checkpoint(pathlib.Path("best"), 12, {}, "")
    attacked = result_lines.attacked_run(experiment, dataset, "best", saved)
    common = result_lines.images_of(experiment, resolved.test.num_examples, 100)
    return {
        lines.key({"attacked": attacked, "conditions": named.conditions | common})
        for named in evaluation_attacks(resolved)
    }


# What a plugin brings, a network or data, is in its lines itself.
DECIDING = [path for path, field in FIELDS.items() if field.affects & EVALUATION]


@pytest.mark.parametrize("path", [path for path in DECIDING if path != "plugins"])
def test_a_field_that_decides_a_number_changes_a_key(path):
    network = PREACT if path in ("classifier.shortcut", "classifier.last_norm") else {}
    assert keys(**network, **{path: OTHERS[path]}) != keys(**network)


def test_a_field_that_decides_nothing_changes_no_key():
    idle = [path for path, field in FIELDS.items() if field.affects == NOTHING]
    others = {"log_every": 7, "remat": True, "parallel": "shard_map", "test.batch_size": 3}
    others |= {"test.num_checked": 2, "test.save_adversarial": "uint8", "keep_checkpoints": 5}
    assert others.keys() <= set(idle) - CHOOSING
    for path, value in others.items():
        assert keys(**{path: value}) == keys(), path


@pytest.mark.parametrize(
    "num_validation, selection, expected",
    [(0, "validation", "none"), (0, "test", "test"), (9, "validation", "validation")],
)
def test_a_line_says_which_split_chose_the_checkpoint(num_validation, selection, expected):
    fields = {"num_validation": num_validation, "selection": selection}
    assert {json.loads(key)[0]["selection"] for key in keys(**fields)} == {expected}


@pytest.fixture
def config():
    return settings.resolve(small_runs.config(evaluation="natural,pgd20"))


def line(config, name, accuracy, **changes):
    conditions = made_lines.conditions(config, [name])[name]
    return made_lines.result(made_lines.attacked(config), conditions, accuracy, **changes)


def test_a_line_is_replaced_in_its_place_by_a_line_of_its_key(config, tmp_path):
    file = tmp_path / "results.jsonl"
    first, second = line(config, "natural", 0.9), line(config, "pgd20", 0.5)
    lines.replace(file, [first, second])
    time = file.stat().st_mtime_ns
    lines.replace(file, [second])
    assert file.stat().st_mtime_ns == time, "nothing has changed, and nothing is written"
    others = [line(config, "pgd20", 0.6, **change) for change in ({"size": 10}, {"epsilon": 0.01})]
    lines.replace(file, [*others, line(config, "natural", 0.8)])
    assert files.read_json_lines(file) == [line(config, "natural", 0.8), second, *others]
    assert RunFolder(tmp_path).read_lines("results") == files.read_json_lines(file)


def test_a_check_that_finds_the_same_again_keeps_its_date(config, tmp_path):
    attacked = made_lines.attacked(config)

    def write(text, date):
        finding = Finding("logits", True, text)
        written = result_lines.check_line(attacked, {"epsilon": 0.1}, finding, {"date": date})
        result_lines.write(RunFolder(tmp_path), [], [written])
        return [check["outcome"] for check in files.read_json_lines(tmp_path / "checks.jsonl")]

    first = write("fine", "monday")
    assert write("fine", "tuesday") == first
    assert write("other", "wednesday") == [{"passed": True, "text": "other", "date": "wednesday"}]


def test_the_newest_step_of_each_checkpoint_is_what_tables_show(config):
    steps = [(name, step) for name in ("best", "last") for step in (5, 12)] + [(None, None)]
    records = [
        made_lines.result(made_lines.attacked(config, name, step), {"attack": "natural"}, 0.5)
        for name, step in steps
    ]
    shown = [line["attacked"]["step"] for line in lines.newest(records)]
    assert shown == [12, 12, None]
    again = made_lines.attacked(config, "best", 12, weights="b" * 64)
    records.append(made_lines.result(again, {"attack": "natural"}, 0.6))
    newest = [line["attacked"]["weights"][0] for line in lines.newest(records)]
    assert newest == ["0", "f", "b"], "best/ was trained anew, to the same step"


def result(name, excess, queries=20, clipped=True):
    count = [queries] * 50
    conditions = {"attack": name, "epsilon": 0.1, "clipped": clipped}
    return Result(name, conditions, None, np.array(count), np.zeros(50), None, 1.0, excess)


def test_the_budget_says_which_attacks_were_held_to_the_pixel_range():
    both = attacks_stay_in_ball(
        [result("pgd20", 1e-8), result("pgd20_unclipped", 2e-8, clipped=False)]
    )
    assert both.passed and both.attacks == ("pgd20", "pgd20_unclipped")
    assert "100 adversarial images leave their ball by at most 2.0e-08" in both.text
    assert "pgd20 also stay in [0, 1]; pgd20_unclipped are not clipped to it" in both.text
    free = attacks_stay_in_ball([result("pgd20_unclipped", -0.0, clipped=False)])
    assert "by at most 0.0e+00 (pgd20_unclipped)" in free.text and "-0" not in free.text
    assert "none is clipped to [0, 1] (pgd20_unclipped)" in free.text
    assert attacks_stay_in_ball([result("pgd20", 1e-8)]).text.endswith(
        "none leaves [0, 1] by more."
    )
    assert not attacks_stay_in_ball([result("pgd20", 1e-3)]).passed
    assert (
        attacks_stay_in_ball([result("natural", 0.0, queries=0)]).text == "No image was attacked."
    )
