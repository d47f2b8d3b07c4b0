"""Transfer: what is found on one run attacks another, under its own conditions, and is checked."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_runs
from jax.tree_util import Partial

from cat_jax import attacks, data, losses, weights
from cat_jax.cli import modes
from cat_jax.errors import UsageError
from cat_jax.evaluation import checks, transfer
from cat_jax.experiment import labels, settings, suites
from cat_jax.report import grids, tables, transfer_matrix
from cat_jax.storage import checkpoint, files, lines
from cat_jax.storage.run_folder import RunFolder
from cat_jax.weights import trained

WORD = "mi_fgsm:num_steps=2,momentum=0.5"
EVALUATION = {"evaluation": f"natural,{WORD}", "test.num_checked": 0, "test.batch_size": 16}
EVALUATION |= {"test.num_examples": 40}


def write_run(workdir, seed):
    """A run as it is before its first step: random networks as best/ and last/."""
    config = small_runs.config(seed=seed, **EVALUATION)
    experiment, dataset, _ = small_runs.experiment(config)
    state = experiment.init()
    meta = {"epoch": 0.5, "num_devices": 1, "image_shape": [8, 8, 3]}
    meta["class_names"] = [*"0123456789"]
    for name in ("best", "last"):
        checkpoint.save(workdir / "checkpoints" / name, state, meta, keep=1)
    files.write_json_lines(workdir / "metrics.jsonl", [{"step": 1}])
    fields = settings.as_dict(settings.resolve(config))
    RunFolder(workdir).write_config(fields, {}, dataset.fingerprint)
    return workdir


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the runs a, b and c, none of which is evaluated."""
    folder = tmp_path_factory.mktemp("transfer")
    for seed, name in enumerate("abc"):
        write_run(folder / name, seed)
    return folder


def results(workdir):
    return files.read_json_lines(workdir / "results.jsonl")


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_a_run_is_attacked_with_what_is_found_on_others(folder, capsys, monkeypatch):
    """The accuracy is that of the pure functions; the source is attacked once for all weights."""
    sources = [str(folder / name) for name in "ac"]
    modes.evaluate(None, folder / "b", transfer_from=sources)
    (line,) = [x for x in results(folder / "b") if lines.is_transfer(x)][:1]
    a, b, c = (trained.load(folder / name).classifier for name in "abc")
    conditions = line["conditions"]
    assert conditions["attack"] == f"{WORD}_transfer" and conditions["momentum"] == 0.5
    assert "after" not in conditions, "the source is attacked on all images"
    assert [part["run"] for part in conditions["source"]] == ["a", "c"]
    digests = [weights.fingerprint(loaded.variables)[:12] for loaded in (a, c)]
    assert [part["weights"] for part in conditions["source"]] == digests

    test = data.load("synthetic").test
    test = test.take(data.balanced(test.labels, 40, 0))
    images, classes = data.to_unit(jnp.asarray(test.images)), jnp.asarray(test.labels)
    hyper = dict(epsilon=conditions["epsilon"], num_steps=2, momentum=0.5)
    both = attacks.mean_logits(a.logits_fn, c.logits_fn)
    found = attacks.mi_fgsm(both, images, classes, jax.random.key(0), **hyper)
    right = losses.is_right(b.logits_fn(found), classes)
    assert line["outcome"]["accuracy"] == pytest.approx(float(right.mean()), abs=0.026)

    text = " ".join(capsys.readouterr().out.split())
    assert "Transfer, mi_fgsm:num_steps=2,momentum=0.5 at 0.15: images found on" in text
    assert "| a + c " in text and f"| {transfer_matrix.ITSELF}" in text
    monkeypatch.setattr(transfer.Transfer, "images", lambda *_: pytest.fail("attacked again"))
    before = (folder / "b" / "results.jsonl").read_bytes()
    modes.evaluate(None, folder / "b", transfer_from=sources)
    assert (folder / "b" / "results.jsonl").read_bytes() == before


def line_of(run, accuracy, source=None):
    """A line of results.jsonl of best/ of a run, under an attack on itself or on a source."""
    attack = {"attack": "pgd20", "norm": "linf", "epsilon": 0.1, "clipped": True}
    attack |= {"num_examples": 100, "subset": "all"}
    if source:
        described = [{"run": name, "weights": 12 * name} for name in source.split("+")]
        attack |= {"attack": "pgd20_transfer", "source": described}
    attacked = {"checkpoint": "best", "step": 1, "weights": 64 * run, "file": None}
    attacked |= {"variant": "at", "method": "at", "dataset": "digits", "seed": 0}
    attacked |= {"conventions": "paper", "selection": "validation"}
    interval = [accuracy - 0.01, accuracy + 0.01]
    outcome = {"accuracy": accuracy, "interval": interval}
    return {"attacked": attacked, "conditions": attack, "outcome": outcome}


def test_the_matrix_has_a_row_for_each_source_and_transfer_is_in_no_other_table(tmp_path):
    runs = {
        "b": [line_of("b", 0.5), line_of("b", 0.8, "a"), line_of("b", 0.7, "a+c")],
        "c": [line_of("c", 0.4), line_of("c", 0.6, "a")],
    }
    for name, records in runs.items():
        (tmp_path / name).mkdir()
        files.write_json_lines(tmp_path / name / "results.jsonl", records)
    (grid,) = transfer_matrix.transfer_grids([tmp_path / name for name in "bc"])
    assert grid.caption.startswith("Transfer, pgd20 at 0.1: images found on the run of the row")
    assert list(grid.head) == ["found on", "b, best", "c, best"]
    assert [list(row) for row in grid.body] == [
        ["a", "80.0 (±1.0)", "60.0 (±1.0)"],
        ["a + c", "70.0 (±1.0)", tables.DASH],
        [transfer_matrix.ITSELF, "50.0 (±1.0)", "40.0 (±1.0)"],
    ]
    text = grids.captioned(transfer_matrix.transfer_grids([tmp_path / "c"]))
    assert text.count("| a ") == text.count(transfer_matrix.ITSELF) == 1
    assert "_transfer" not in tables.runs_table([tmp_path / "b"])


@pytest.mark.usefixtures("no_page")
def test_sources_that_do_not_fit_are_refused(folder, tmp_path):
    for source, message in (
        (folder / "b", "names .*b, the attacked run; name another run"),
        (folder / "none", "does not exist|holds no config.json"),
    ):
        with pytest.raises(UsageError, match=message):
            modes.evaluate(None, folder / "b", transfer_from=[str(source)])


def test_conditions_name_the_source_in_words():
    conditions = {"attack": "pgd20_transfer", "norm": "linf", "epsilon": 0.1, "clipped": True}
    sources = [{"run": name, "weights": 12 * name} for name in "ab"]
    conditions |= {"source": sources, "num_examples": 10, "subset": "all"}
    assert labels.attack(conditions) == "pgd20_transfer at 0.1 from a + b"
    other = conditions | {"source": [{"run": "a", "weights": 12 * "c"}, sources[1]]}
    first, second = labels.attacks([conditions, other])
    assert first.endswith("weights aaaaaaaa + bbbbbbbb") and second.endswith("cccccccc + bbbbbbbb")
    pgd20 = next(
        a for a in suites.listed(settings.resolve(small_runs.config())) if a.name == "pgd20"
    )
    assert not pgd20.agrees(conditions | dict(pgd20.arguments)), "no table of the paper shows it"
    assert json.dumps(conditions)


def digits_and_linear(seed):
    """Digits, and a linear classifier of half of the training images."""
    dataset = data.load("digits")
    flat = np.asarray(data.to_unit(dataset.train.images)).reshape(len(dataset.train.labels), -1)
    half = np.random.default_rng(seed).permutation(len(flat))[: len(flat) // 2]
    targets = np.eye(10)[np.asarray(dataset.train.labels)[half]]
    gram = flat[half].T @ flat[half] + 3.0 * np.eye(flat.shape[1])
    matrix = jnp.asarray(np.linalg.solve(gram, flat[half].T @ targets), jnp.float32)
    test = dataset.test
    images, classes = data.to_unit(jnp.asarray(test.images[:100])), jnp.asarray(test.labels[:100])
    return images, classes, Partial(_linear, matrix)


def _linear(matrix, images):
    return 10 * images.reshape(len(images), -1) @ matrix


@pytest.mark.slow
def test_the_check_fires_on_a_masked_classifier_and_on_no_honest_one():
    """Rounded pixels have no gradient; images that were found on a plain classifier need none."""
    images, classes, source = digits_and_linear(0)
    _, _, honest = digits_and_linear(1)
    masked = Partial(lambda f, images: f(jnp.round(8 * images) / 8), honest)
    key, pgd = jax.random.key(0), functools.partial(attacks.pgd, epsilon=0.1, num_steps=10)
    pgd = functools.partial(pgd, step_size=0.02)
    found = attacks.mi_fgsm(source, images, classes, key, epsilon=0.1)

    def verdict(target):
        flags = {"natural": losses.is_right(target(images), classes)}
        flags["pgd20"] = losses.is_right(target(pgd(target, images, classes, key)), classes)
        flags["mi_fgsm_transfer"] = losses.is_right(target(found), classes)
        findings = checks.compare({name: np.asarray(f) for name, f in flags.items()})
        (finding,) = [f for f in findings if f.name == "transfer_is_weaker"]
        return finding

    assert verdict(honest).passed and verdict(source).passed
    finding = verdict(masked)
    assert not finding.passed and "masked gradients" in finding.text
    assert finding.attacks == ("pgd20", "mi_fgsm_transfer")


def test_transfer_is_compared_in_its_ball_and_by_no_other_check():
    right, fooled = np.ones(100, bool), np.zeros(100, bool)
    flags = {"natural": right, "pgd20_unclipped": right, "pgd20_transfer": fooled}
    names = [finding.name for finding in checks.compare(flags)]
    assert names == ["attacks_lower_accuracy"]
    few = right.copy()
    few[:2] = False
    flags = {"natural": right, "pgd20": right, "pgd20_transfer": few}
    assert all(finding.passed for finding in checks.compare(flags))
    few[:3] = False
    assert [f.name for f in checks.compare(flags) if not f.passed] == ["transfer_is_weaker"]
