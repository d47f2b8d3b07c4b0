"""Exports: what is written, read again, is the network that was trained; and the card says so."""

import importlib
import json
import logging
import pathlib
import runpy
import shutil

import jax
import numpy as np
import pytest
import small_runs
from safetensors import numpy as safetensors_numpy
from slow_cases import slow

from cat_jax import data, networks, weights
from cat_jax.cli import modes
from cat_jax.errors import UsageError
from cat_jax.evaluation import robustness
from cat_jax.experiment import settings
from cat_jax.experiment.network import build_networks
from cat_jax.storage import checkpoint, files, verify
from cat_jax.storage.run_folder import RunFolder
from cat_jax.weights import Loaded, export, submission, trained, weight_files

# What training writes beside the arrays of a checkpoint.
META = {"epoch": 0.5, "num_devices": 1, "image_shape": [8, 8, 3], "class_names": [*"0123456789"]}
SAVED = {"evaluation": "fgsm", "test.save_adversarial": "uint8"}
SAVED |= {"classifier.name": "SmallCNN"}  # Because its names in PyTorch are published.


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A run as it is before its first step, evaluated: best/ and last/ are random networks."""
    workdir = tmp_path_factory.mktemp("export") / "run"
    config = small_runs.config(**SAVED)
    made, dataset, devices = small_runs.experiment(config)
    for name in ("best", "last"):
        state = made.init()
        if name == "last":  # Another network, of another step.
            state = jax.tree.map(lambda leaf: leaf + leaf.dtype.type(1), state)
        checkpoint.save(workdir / "checkpoints" / name, state, META, keep=1)
    files.write_json_lines(workdir / "metrics.jsonl", [{"step": 1}])
    fields = settings.as_dict(settings.resolve(config))
    RunFolder(workdir).write_config(fields, {}, dataset.fingerprint)
    robustness.evaluate(made, dataset, RunFolder(workdir), devices)
    return workdir


def leaves(loaded):
    return jax.tree.leaves(loaded.variables)


def assert_same(one, another):
    assert type(one.network) is type(another.network)
    assert jax.tree.structure(one.variables) == jax.tree.structure(another.variables)
    for left, right in zip(leaves(one), leaves(another), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("form", ["safetensors", "torch"])
def test_what_is_exported_and_loaded_again_is_the_same_network(form, workdir, tmp_path, capsys):
    if form == "torch":
        pytest.importorskip("torch")
    out = tmp_path / "here"
    arguments = [f"--workdir={workdir}", f"--format={form}", "--checkpoint=last"]
    assert export.main([*arguments, f"--out={out}"]) == 0
    file, *others = capsys.readouterr().out.split()
    run = trained.load(workdir, "last")
    loaded = weights.load(file, image_shape=(8, 8, 3))
    assert_same(loaded, run.classifier)
    assert loaded.network == run.classifier.network
    mask = file if form == "torch" else others[0]
    assert_same(weights.load(mask, part=weights.MASK_NET), run.mask_net)
    images = np.random.default_rng(0).uniform(size=(2, 8, 8, 3)).astype(np.float32)
    np.testing.assert_array_equal(loaded.logits_fn(images), run.classifier.logits_fn(images))


def test_best_and_last_are_not_mixed_up(workdir):
    best, last = (trained.load(workdir, name) for name in ("best", "last"))
    assert (best.step, last.step) == (0, 1)
    for before, after in zip(leaves(best.classifier), leaves(last.classifier), strict=True):
        np.testing.assert_allclose(after, before + 1, rtol=1e-6)
    with pytest.raises(UsageError, match=r"run holds no checkpoint best_average"):
        trained.load(workdir, "best_average")


def test_the_card_has_data_method_numbers_versions_and_sums(workdir, capsys):
    assert export.main([f"--workdir={workdir}", "--format=safetensors"]) == 0
    *paths, card = capsys.readouterr().out.split()
    assert [path.rpartition("/")[2] for path in paths] == [
        *("run_best.safetensors", "run_best_mask_net.safetensors")
    ]
    text = pathlib.Path(card).read_text()
    modes = {pathlib.Path(path).stat().st_mode for path in (*paths, card)}
    assert len(modes) == 1, "weights are as readable as the card beside them"
    for path in map(pathlib.Path, paths):
        assert f"    {weight_files.digest(path)}  {path.name}\n" in text
    of_best = [
        line
        for line in files.read_json_lines(workdir / "results.jsonl")
        if line["attacked"]["checkpoint"] == "best"
    ]
    assert len(of_best) == 2
    for line in of_best:
        outcome, attack = line["outcome"], line["conditions"]["attack"]
        low, high = (100 * end for end in outcome["interval"])
        numbers = f"{100 * outcome['accuracy']:.1f} | {low:.1f} to {high:.1f} | 64 |"
        assert f"| {attack} | L-infinity 0.15 | 1 step of 0.15 | {numbers}" in text
    for word in ("synthetic", "cat", "released", "SmallCNN(num_classes=10)", "32 training images"):
        assert word in text
    for name, version in of_best[0]["outcome"]["versions"].items():
        assert f"- {name} {version}" in text
    config = json.loads(text.split("```json")[1].split("```")[0])
    assert config["seed"] == 0
    assert f"is `best` of step 0, after 0.5 of {config['num_epochs']} epochs." in text
    verdicts = {item.verdict for item in verify.verify(workdir)}
    assert verify.DAMAGED not in verdicts


@pytest.mark.slow
def test_weights_of_a_file_are_evaluated_under_their_own_name(workdir, tmp_path, capsys, caplog):
    """In a folder of their own, and beside the checkpoints of another run, which stay."""
    stem = tmp_path / "w"
    (file, *_) = export.export(trained.load(workdir), workdir, "safetensors", stem)
    digest = weight_files.digest(file)
    copy = shutil.copytree(workdir, tmp_path / "copy", ignore=lambda *_: ["export"])
    before = files.read_json_lines(workdir / "results.jsonl")
    of_best = {
        line["conditions"]["attack"]: line["outcome"]["accuracy"]
        for line in before
        if line["attacked"]["checkpoint"] == "best"
    }
    for folder, others in ((tmp_path / "fresh", []), (copy, before)):
        with caplog.at_level(logging.INFO, "cat_jax"):
            modes.evaluate_file(small_runs.config(**SAVED), folder, str(file))
        lines = files.read_json_lines(folder / "results.jsonl")
        assert lines[: len(others)] == others
        new = lines[len(others) :]
        assert {line["conditions"]["attack"] for line in new} == {"fgsm", "fgsm_uint8"}
        for line in new:
            attacked = line["attacked"]
            unknown = ("method", "variant", "seed", "checkpoint", "step", "selection", "training")
            assert [attacked[name] for name in unknown] == [None] * len(unknown)
            assert (attacked["file"]["name"], attacked["file"]["sha256"]) == (file.name, digest)
            assert attacked["file"]["states"]["variant"] == "cat_cent"
            accuracy = of_best[line["conditions"]["attack"]]
            assert line["outcome"]["accuracy"] == accuracy
        assert all(item.verdict != verify.DAMAGED for item in verify.verify(folder))
    (flags,) = (copy / "evaluation").glob("weights-*_fgsm_????????.npz")
    with np.load(flags) as kept:
        harmed = dict(kept)
    np.savez(flags, **(harmed | {"flags": 1 - harmed["flags"]}))
    wrong = [item.name for item in verify.verify(copy) if item.verdict == verify.DAMAGED]
    assert wrong == [f"results.jsonl, {flags.stem}"]
    label = "weights w.safetensors (SmallCNN)"
    banner = next(record.message for record in caplog.records if record.message.startswith("cat_j"))
    assert f": evaluate {label} on synthetic\n" in banner and digest[:12] in banner
    assert "method" not in banner and "seed" not in banner
    assert label in (copy / "report.html").read_text()
    page = (tmp_path / "fresh" / "report.html").read_text()
    assert (
        f"<title>fresh: {label} on synthetic</title>" in page
        and "cat_cent" not in (page.partition("<details>")[0])
    )


def test_weights_that_do_not_fit_the_config_leave_no_workdir(workdir, tmp_path):
    (file, *_) = export.export(trained.load(workdir), workdir, "safetensors", tmp_path / "w")
    config = small_runs.config(**{"classifier.name": "PreActResNet18"})
    with pytest.raises(UsageError, match=r"w.safetensors: .*missing.*; the file holds SmallCNN"):
        modes.evaluate_file(config, tmp_path / "new", str(file))
    assert not (tmp_path / "new").exists()


def of_ones(config, workdir, average=False):
    """A run whose last/ is ones, and its average twos; nothing is compiled."""
    made, dataset, _ = small_runs.experiment(config)
    ones = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), jax.eval_shape(made.init))
    if average:
        twos = jax.tree.map(lambda leaf: 2 * leaf, ones.classifier.params)
        ones = ones.replace(average={"params": twos, "batch_stats": {}})
    checkpoint.save(workdir / "checkpoints" / "last", ones, META, keep=1)
    fields = settings.as_dict(settings.resolve(config))
    RunFolder(workdir).write_config(fields, {}, dataset.fingerprint)


def test_the_average_is_exported_as_what_it_is(tmp_path):
    """It is in the state of last/, beside the classifier that it is the average of."""
    of_ones(small_runs.config(), tmp_path, average=True)
    for name, value in (("last", 1), ("last_average", 2)):
        run = trained.load(tmp_path, name)
        assert all(np.all(leaf == value) for leaf in leaves(run.classifier))
        assert all(np.all(leaf == 1) for leaf in leaves(run.mask_net))


def test_statistics_and_normalisation_are_exported_and_a_mask_only_where_there_is_one(tmp_path):
    config = small_runs.quick_config(**{"classifier.name": "WideResNet"})
    config.classifier.update(depth=10, widen_factor=1, mean=(0.4, 0.5, 0.6), std=(0.1, 0.2, 0.3))
    of_ones(config, tmp_path)
    run = trained.load(tmp_path, "last")
    assert run.mask_net is None
    file, *others = export.export(run, tmp_path, "safetensors", tmp_path / "w")
    assert [path.name for path in others] == ["w.safetensors.md"]
    loaded = weights.load(file)
    assert loaded.network == networks.WideResNet(10, 10, 1, (0.4, 0.5, 0.6), (0.1, 0.2, 0.3))
    assert_same(loaded, run.classifier)
    assert loaded.variables["batch_stats"]["bn1"]["var"].shape == (64,)
    text = others[0].read_text()
    assert "mean [0.4, 0.5, 0.6] and std [0.1, 0.2, 0.3] are applied inside" in text
    assert "Not evaluated yet" in text


NORMALISED = {"classifier.mean": (0.4, 0.5, 0.6), "classifier.std": (0.1, 0.2, 0.3)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name, side, fields",
    [
        ("SmallCNN", 8, {}),
        ("StridedCNN", 8, {}),
        ("WideResNet", 8, {"classifier.depth": 10, "classifier.widen_factor": 2} | NORMALISED),
        pytest.param("PreActResNet18", 32, NORMALISED, marks=pytest.mark.slow),
        pytest.param("ResNet18", 32, NORMALISED, marks=pytest.mark.slow),
    ],
)
def test_the_class_of_a_submission_has_our_logits(name, side, fields, tmp_path):
    """In a process without cat_jax it would too: the file imports PyTorch alone."""
    torch = pytest.importorskip("torch")
    config = settings.resolve(small_runs.quick_config(**{"classifier.name": name} | fields))
    shape = (side, side, 3)
    network, _ = build_networks(config, data.Spec(shape, 10, 0))
    shapes = jax.eval_shape(network.init, jax.random.key(0), np.zeros((1, *shape), np.float32))
    rng = np.random.default_rng(0)
    variables = jax.tree.map(lambda x: rng.uniform(0.01, 0.1, x.shape).astype(np.float32), shapes)
    run = trained.Trained(
        Loaded(network, {"batch_stats": {}} | variables, tmp_path, "", {}),
        *(None, config, "best", 1, 0.1, shape),
    )
    file, code, *_ = submission.write(run, tmp_path, tmp_path / "model")
    assert "cat_jax" not in code.read_text().split('"""')[2]
    module = runpy.run_path(str(code))
    model = module["load"](file)
    images = rng.uniform(size=(3, *shape)).astype(np.float32)
    expected = np.asarray(run.classifier.logits_fn(images))
    with torch.no_grad():
        logits = model(torch.tensor(images.transpose(0, 3, 1, 2))).numpy()
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    assert model.mu.shape == model.sigma.shape == (3, 1, 1)
    unseen = network if name == "PreActResNet18" else None  # A state dict has no shortcut's start.
    again = weights.load(file, unseen, image_shape=shape)
    assert_same(
        again, Loaded(network, jax.tree.map(np.asarray, run.classifier.variables), *again[2:])
    )


def test_a_submission_states_what_was_measured_and_what_is_missing(workdir, tmp_path, capsys):
    pytest.importorskip("torch")
    copy = shutil.copytree(workdir, tmp_path / "run", ignore=lambda *_: ["export"])
    command = [f"--workdir={copy}", "--format=robustbench"]

    def write():
        assert export.main(command) == 0
        paths = [pathlib.Path(path) for path in capsys.readouterr().out.split()]
        assert [path.name for path in paths] == [
            f"run_best.{end}" for end in ("pt", "py", "json", "md", "log")
        ]
        info, issue, log = (path.read_text() for path in paths[2:])
        return json.loads(info), issue, log

    info, issue, log = write()
    fgsm = files.read_json_lines(copy / "results.jsonl")[0]
    missing = {name for name, value in info.items() if value == ""}
    assert missing >= {"reported", "autoattack_acc"} and info["dataset"] == "synthetic"
    assert info["eps"] == "0.15" and info["architecture"] == "SmallCNN"
    assert info["name"] == "Calibrated Adversarial Training"
    assert "not evaluated: " in issue and log.startswith("not evaluated: ")

    lines = [copy_of(fgsm, "natural", 0.9, 64, 0), copy_of(fgsm, "apgd_ce", 0.5, 64, 58)]
    lines += [copy_of(fgsm, "standard", 0.25, 64, 32), copy_of(fgsm, "standard", 0.1, 10, 9)]
    lines.append(copy_of(fgsm, "standard", 0.3, 64, 32))
    lines[-1]["conditions"]["search_precision"] = "bfloat16"
    files.write_json_lines(copy / "results.jsonl", lines)
    info, issue, log = write()
    assert (info["clean_acc"], info["autoattack_acc"]) == ("90.00", "25.00")
    assert "**Robust accuracy**: 25.00%" in issue and "seed 0, 64 test images" in issue
    assert "initial accuracy: 90.00%\nAPGD-CE: 26 out of 58 successfully perturbed" in log
    assert "robust accuracy after SQUARE: 25.00%" in log and fgsm["attacked"]["weights"] in log


def copy_of(line, attack, accuracy, num_examples, num_attacked):
    """A line of the same weights under another attack."""
    conditions = line["conditions"] | {"attack": attack, "num_examples": num_examples}
    conditions |= {"num_queries": 5000, "seed": 0, "subset": "all" if num_examples > 10 else "part"}
    outcome = line["outcome"] | {"accuracy": accuracy, "num_attacked": num_attacked}
    return {"attacked": line["attacked"], "conditions": conditions, "outcome": outcome}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["safetensors", slow("torch")])
def test_adversarial_images_are_exported_for_others_to_check(form, workdir, tmp_path, capsys):
    torch = pytest.importorskip("torch") if form == "torch" else None
    named = [f"--format={form}", "--adversarial=fgsm", f"--out={tmp_path / 'a'}"]
    assert export.main([f"--workdir={workdir}", *named]) == 0
    file = capsys.readouterr().out.strip()
    found = torch.load(file, weights_only=True) if torch else safetensors_numpy.load_file(file)
    found = {name: np.asarray(found[name]) for name in ("adv_complete", "x_test", "y_test")}
    x, natural, y = found["adv_complete"], found["x_test"], found["y_test"]
    assert x.shape == natural.shape == (64, 3, 8, 8) and y.dtype == np.int64
    assert x.dtype == natural.dtype == np.float32 and x.min() >= 0 and x.max() <= 1
    epsilon = trained.load(workdir).config.test.epsilon
    assert 0.9 * epsilon < np.abs(x - natural).max() <= epsilon + 1e-6
    logits = trained.load(workdir).classifier.logits_fn(x.transpose(0, 2, 3, 1))
    right = np.argmax(logits, -1) == y
    line = next(
        line
        for line in files.read_json_lines(workdir / "results.jsonl")
        if line["attacked"]["checkpoint"] == "best" and line["conditions"]["attack"] == "fgsm_uint8"
    )
    assert right.mean() == line["outcome"]["accuracy"]
    if torch:  # As RobustBench checks them.
        model = importlib.import_module("cat_jax.weights.robustbench").load_model(workdir)
        predicted = model(torch.load(file)["adv_complete"]).max(1)[1]
        assert (predicted == torch.load(file)["y_test"]).float().mean().item() == line["outcome"][
            "accuracy"
        ]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            ["--format=safetensors", "--adversarial=pgd20"],
            "holds no adversarial images of best under",
        ),
        (
            ["--format=safetensors", "--adversarial=fgsm", "--epsilon=0.1"],
            "holds no adversarial images of best under fgsm at 0.1; evaluate",
        ),
        (
            ["--format=safetensors", "--adversarial=fgsm", "--epsilon=a"],
            "--epsilon is 'a'; expected",
        ),
        (["--format=safetensors", "--epsilon=0.1"], "--epsilon needs --adversarial=ATTACK"),
        (["--format=safetensors", "--data_dir=."], "--data_dir needs --adversarial=ATTACK"),
        (["--format=torch", "--out=x.pt"], "--out is x.pt; files of --format=torch end in .pth."),
        (["--format=safetensors", "--checkpoint=last_average"], "no checkpoint last_average"),
        (["--format=safetensors", "--out=/proc/no/x"], "--out is /proc/no, where files cannot"),
    ],
)
def test_what_cannot_be_exported_is_said_in_one_line(arguments, message, workdir, capsys):
    assert export.main([f"--workdir={workdir}", *arguments]) == 2
    output, errors = capsys.readouterr()
    assert output == "" and errors.count("\n") == 1 and message in errors
    inside = workdir / "checkpoints" / "best"
    assert export.main([f"--workdir={inside}", "--format=torch"]) == 2
    assert f"inside the run {workdir}; name the run" in capsys.readouterr().err
    assert export.main(["--workdir=/nowhere", "--format=torch"]) == 2
    assert "/nowhere holds no config.json" in capsys.readouterr().err
