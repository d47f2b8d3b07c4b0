"""Sweeps: which runs they stand for, what is refused, and going on where one stopped."""

import json
import logging
import pathlib

import made_lines
import pytest
import small_runs

from cat_jax import data
from cat_jax.cli import modes, sweep
from cat_jax.configs import preact_cifar10
from cat_jax.errors import UsageError
from cat_jax.experiment import settings
from cat_jax.storage import files


@pytest.fixture
def config():
    return preact_cifar10.get_config("cat_cw")


def test_a_sweep_is_the_product_of_its_axes(config):
    along = sweep.axes(["beta1=0.05,0.1", "attack.epsilon=8/255,10/255"], ["0", "2"], config)
    assert along == [
        ("method.beta1", (0.05, 0.1)),
        ("attack.epsilon", ("8/255", "10/255")),
        ("seed", (0, 2)),
    ]
    made = sweep.points(config, along)
    assert len(made) == 8
    assert [point.name for point in made[:3]] == [
        "beta1_0.05_epsilon_8-255_seed_0",
        "beta1_0.05_epsilon_8-255_seed_2",
        "beta1_0.05_epsilon_10-255_seed_0",
    ]
    last = made[-1].config
    assert (last.method.beta1, last.attack.epsilon, last.seed) == (0.1, "10/255", 2)
    assert config.method.beta1 == 0.05 and config.seed == 0, "the config itself is as it was"


def test_values_have_the_types_of_their_fields(config):
    texts = ["weighted=True,false", "attack.clip=True,False", "num_epochs=1,2", "sees=sum,pair"]
    along = sweep.axes(texts, [], config)
    assert [axis.values for axis in along] == [
        (True, False),
        (True, False),
        (1, 2),
        ("sum", "pair"),
    ]


@pytest.mark.parametrize(
    "sweeps, seeds, what",
    [
        (["beta2=1,2"], [], "no field beta2; did you mean"),
        (["epsilon=0.1,0.2"], [], "fits several fields, threat.epsilon, attack.epsilon"),
        (["beta1"], [], "expected FIELD=VALUE,VALUE"),
        (["beta1=0.1,"], [], "expected FIELD=VALUE,VALUE"),
        (["beta1=high"], [], "'high' for method.beta1; expected float"),
        (["num_epochs=1.5"], [], "'1.5' for num_epochs; expected int"),
        (["weighted=2"], [], "'2' for method.weighted; expected bool"),
        (["optimizer.drop_epochs=1,2"], [], "expected tuple, which cannot be swept"),
        (["beta1=0.1,0.10"], [], "has a value twice"),
        (["beta1=0.1", "method.beta1=0.3"], [], "method.beta1 is swept twice"),
        (["seed=0,1"], ["2"], "seed is swept twice"),
        ([], ["a"], "'a' for seed; expected int"),
        (["attack.epsilon=8"], [], "write 8/255"),
        (["conventions=mine"], [], "available: paper, released, warmup"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(config, sweeps, seeds, what):
    with pytest.raises(UsageError) as error:
        sweep.points(config, sweep.axes(sweeps, seeds, config))
    assert what in str(error.value) and "\n" not in str(error.value)


def test_a_run_that_fails_does_not_keep_the_others_and_a_signal_does(config, tmp_path, caplog):
    made = sweep.points(config, sweep.axes([], ["0", "1", "2"], config))
    ran = []

    def run(config, folder):
        ran.append(config.seed)
        if config.seed == 1:
            raise UsageError("Training stopped: the loss is nan.")
        return True

    with caplog.at_level(logging.ERROR), pytest.raises(UsageError, match=r"1 of 3.*seed_1.*nan"):
        sweep.run_all(made, tmp_path, run, done=lambda *_: False)
    assert ran == [0, 1, 2]
    ended = sweep.run_all(made, tmp_path, lambda c, _: c.seed != 1, done=lambda *_: False)
    assert ended == [tmp_path / "seed_0"], "stopped at seed 1: seed 2 has not begun"
    ended = sweep.run_all(made[:1], tmp_path, run, done=lambda *_: True)
    assert ended == [tmp_path / "seed_0"] and ran == [0, 1, 2], "what is done is not run again"


def test_done_is_of_this_config_at_its_last_step_under_every_attack(tmp_path):
    config = small_runs.config(evaluation="natural,pgd20")
    resolved = settings.resolve(config)
    natural, pgd20 = made_lines.conditions(resolved).values()

    def write(step, *attacks, epoch=0.9):
        files.write_json_lines(tmp_path / "metrics.jsonl", [{"step": step, "epoch": epoch}])
        attacked = made_lines.attacked(resolved, "last", step)
        results = [made_lines.result(attacked, attack, 0.5) for attack in attacks]
        files.write_json_lines(tmp_path / "results.jsonl", results)

    write(12, natural, pgd20)
    assert not sweep.is_done(config, tmp_path), "there is no config.json"
    files.write_text(tmp_path / "config.json", json.dumps(settings.as_dict(resolved)))
    assert resolved.num_steps == 12 and sweep.is_done(config, tmp_path)
    write(12, natural, pgd20 | {"epsilon": 0.01})
    assert not sweep.is_done(config, tmp_path), "under another radius"
    write(12, natural)
    assert not sweep.is_done(config, tmp_path)
    write(10, natural, pgd20)
    assert not sweep.is_done(config, tmp_path), "it was stopped before its last step"
    write(12, natural, pgd20)
    config.method.beta1 = 0.7
    assert not sweep.is_done(config, tmp_path), "another config"


@pytest.mark.parametrize(
    "fields, checkpoint, attacks",
    [
        ({"evaluation": "curve"}, "last", ("curve_fmn", "curve_apgd")),
        ({"evaluation": "corruptions"}, "last", ("corruption",)),
        ({"evaluation": "natural", "average.kind": "moving"}, "last_average", ()),
    ],
)
def test_done_includes_curves_corruptions_and_averages(fields, checkpoint, attacks, tmp_path):
    config = small_runs.config(**fields)
    resolved = settings.resolve(config)
    files.write_text(tmp_path / "config.json", json.dumps(settings.as_dict(resolved)))
    files.write_json_lines(tmp_path / "metrics.jsonl", [{"step": 12, "epoch": 0.9}])
    conditions = [{"attack": "natural"}, *({"attack": attack} for attack in attacks)]
    results = [
        made_lines.result(made_lines.attacked(resolved, name, 12), one, 0.5)
        for name in dict.fromkeys(["last", checkpoint])
        for one in conditions
    ]
    files.write_json_lines(tmp_path / "results.jsonl", results[:-1])
    assert not sweep.is_done(config, tmp_path)
    files.write_json_lines(tmp_path / "results.jsonl", results)
    assert sweep.is_done(config, tmp_path)


@pytest.mark.parametrize(
    "step, epoch, is_end", [(28, 2.0, True), (29, 29 / 14, False), (27, 27 / 14, False)]
)
def test_the_last_step_of_so_many_epochs_is_known_by_its_epoch(tmp_path, step, epoch, is_end):
    """Of 224 images in batches of 16, which no file of the run says."""
    config = small_runs.config(evaluation="natural", num_steps=0, num_epochs=2)
    resolved = settings.resolve(config)
    files.write_text(tmp_path / "config.json", json.dumps(settings.as_dict(resolved)))
    files.write_json_lines(tmp_path / "metrics.jsonl", [{"step": step, "epoch": epoch}])
    (natural,) = made_lines.conditions(resolved).values()
    attacked = made_lines.attacked(resolved, "last", step)
    files.write_json_lines(tmp_path / "results.jsonl", [made_lines.result(attacked, natural, 0.5)])
    assert sweep.is_done(config, tmp_path) == is_end


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_the_command_trains_every_point_and_prints_them_together(tmp_path, capsys, monkeypatch):
    config = small_runs.quick_config(num_steps=1, num_validation=0)
    workdir = pathlib.Path(tmp_path / "sweep")
    arguments = (config, workdir, "train", ["beta1=0.05,0.1"], [])
    modes.run_sweep(*arguments)
    names = {path.name for path in workdir.iterdir()}
    assert names == {"beta1_0.05", "beta1_0.1"}
    printed = capsys.readouterr().out
    assert "| beta1_0.05, best = last |" in printed.rpartition("beta1_0.05:")[2]
    monkeypatch.setattr(modes, "train", lambda *_: pytest.fail("what is done is not run again"))
    monkeypatch.setattr(data, "load", lambda *_: pytest.fail("nor are the data read"))
    modes.run_sweep(*arguments)
    assert "beta1_0.1, best = last " in capsys.readouterr().out
    with pytest.raises(UsageError, match="A sweep needs a config"):
        modes.run_sweep(None, *arguments[1:])


def test_a_sweep_is_printed_as_commands_that_train_its_runs(config):
    arguments = ["--config=cat_jax:preact_cifar10", "--workdir", "my runs", "--print_commands"]
    arguments += ["--sweep=beta1=0.05,0.1", "--seeds", "0,1", "--config.num_steps=9"]
    printed = modes.sweep_commands(
        config, pathlib.Path("my runs"), ["beta1=0.05,0.1"], ["0", "1"], arguments
    )
    assert len(printed) == 4
    assert printed[1] == (
        "python -m cat_jax.main --config=cat_jax:preact_cifar10 --config.num_steps=9 "
        "'--workdir=my runs/beta1_0.05_seed_1' --config.method.beta1=0.05 --config.seed=1"
    )
