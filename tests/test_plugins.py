"""A module outside the package: trained with, stopped, resumed, evaluated, exported and loaded."""

import hashlib
import json
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest
import small_runs
from absl import flags

from cat_jax import weights
from cat_jax.cli import command_line, modes
from cat_jax.configs import digits
from cat_jax.errors import UsageError
from cat_jax.experiment import settings, suites
from cat_jax.experiment.evaluation_attacks import evaluation_attacks
from cat_jax.networks import Classifier
from cat_jax.runtime.registry import EvaluationAttack, import_plugins, records_of, register
from cat_jax.storage import files
from cat_jax.weights import trained

# Warned of by ml_collections, which loads config files.
pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")
SUPPORT = pathlib.Path(__file__).parent / "support"
NAMES = {"dataset": "stripes", "classifier.name": "Flat", "method.name": "half"}
SMALL = {"method.weight": 0.5, "num_validation": 0, "num_steps": 4}
SMALL |= {"evaluation": "natural,corners"}
# What a new process does with a workdir: it resumes, evaluates, exports and loads.
RESUME = f"""
import runpy, sys
sys.path.insert(0, {str(SUPPORT)!r})
import numpy as np
from cat_jax.runtime.registry import records_of
from cat_jax.networks import Classifier
assert "Flat" not in records_of(Classifier)
workdir = sys.argv[1]
sys.argv = ["main", "--workdir=" + workdir, "--config.num_steps=8"]
try:
    runpy.run_module("cat_jax.main", run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
from cat_jax import weights
from cat_jax.weights import export, trained
assert export.main(["--workdir=" + workdir, "--format=safetensors", "--out=" + workdir + "/w"]) == 0
images = np.linspace(0, 1, 128, dtype=np.float32).reshape(2, 8, 8, 1)
best = trained.load(workdir).classifier.logits_fn(images)
np.testing.assert_array_equal(weights.load(workdir + "/w.safetensors").logits_fn(images), best)
"""


def config(**overrides):
    made = digits.get_config("at")
    made.update_from_flattened_dict(small_runs.OVERRIDES | NAMES | SMALL | overrides)
    made.plugins = ("example_plugin",)
    return made


@pytest.mark.slow
def test_a_network_and_a_method_of_ones_own_go_through_the_whole_cycle(tmp_path):
    workdir = tmp_path / "run"
    assert modes.train(config(), workdir)
    before = trained.load(workdir, "last")
    arguments = [sys.executable, "-c", RESUME, str(workdir)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "half" in done.stdout

    after = trained.load(workdir, "last")
    assert (before.step, after.step) == (4, 8)
    assert after.config.variant == "half" and after.config.classifier.name == "Flat"
    loaded = weights.load(workdir / "w.safetensors")
    assert loaded.network == after.classifier.network
    kept = json.loads((workdir / "config.json").read_text())
    assert kept["plugins"] == ["example_plugin"] and kept["method"]["name"] == "half"
    page = (workdir / "report.html").read_text()
    assert "half on stripes" in page and "Flat" in page
    lines = files.read_json_lines(workdir / "results.jsonl")
    digest = hashlib.sha256((SUPPORT / "example_plugin.py").read_bytes()).hexdigest()[:12]
    for line in lines:
        attacked, conditions = line["attacked"], line["conditions"]
        assert attacked["plugins"] == {"example_plugin": digest}, "which code was attacked"
        assert attacked["variant"] == "half" and attacked["classifier"] == "Flat"
        of_attack = {"example_plugin": digest} if conditions["attack"] == "corners" else None
        assert conditions.get("plugins") == of_attack
    assert {line["conditions"]["attack"] for line in lines} == {"natural", "corners"}
    card = (workdir / "w.safetensors.md").read_text()
    assert "half" in card and "import example_plugin\nfrom cat_jax import weights" in card
    assert "PyTorch [B" not in card and "load_state_dict" not in card, "it has Flax's names"


def read_flags(*arguments):
    """The config of a command line."""
    command_line.read(flags.FLAGS, ["main", "--config=cat_jax:digits:at", *arguments])
    return flags.FLAGS["config"].value


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    """A folder that modules are imported from."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    flags.FLAGS.unparse_flags()
    flags.FLAGS["plugin"].value = []


def test_the_flag_imports_modules_in_turn_and_the_config_keeps_them(in_folder):
    (in_folder / "plugin_a.py").write_text("ORDER = ['a']")
    (in_folder / "plugin_b.py").write_text("import plugin_a\nplugin_a.ORDER.append('b')")
    config = read_flags("--plugin=plugin_a", "--plugin=plugin_b", "--plugin=plugin_a")
    assert settings.resolve(config).plugins == ("plugin_a", "plugin_b")
    assert sys.modules["plugin_a"].ORDER == ["a", "b"]


def test_an_error_in_a_plugin_shows_its_traceback(in_folder, capsys):
    (in_folder / "plugin_helper.py").write_text("def build():\n    return undefined_name\n")
    (in_folder / "broken_plugin.py").write_text("import plugin_helper\n\nplugin_helper.build()\n")
    with pytest.raises(SystemExit) as end:
        read_flags("--plugin=broken_plugin")
    errors = capsys.readouterr().err
    assert end.value.code == 2 and "cat_jax" not in errors.replace(str(in_folder), "")
    assert "broken_plugin.py, line 3: NameError: name 'undefined_name' is not defined" in errors
    assert 'plugin_helper.py", line 2, in build' in errors


@pytest.mark.parametrize(
    "name, message",
    [
        ("no_such_plugin", "there is no module no_such_plugin in this folder or on Python's path"),
        ("no_such_package.plugin", "there is no module no_such_package.plugin"),
        ("", "is not the name of a module"),
    ],
)
def test_a_module_that_is_not_there_is_refused_in_one_line(in_folder, capsys, name, message):
    with pytest.raises(SystemExit):
        read_flags(f"--plugin={name}")
    errors = capsys.readouterr().err
    assert errors.startswith(f"error: --plugin={name} (config.plugins)")
    assert errors.count("\n") == 1
    assert message in errors


def test_names_that_no_plugin_registered_say_how_to_name_one():
    fields = {"classifier.name": "Unheard", "dataset": "synthetic", "method.name": "at"}
    with pytest.raises(UsageError, match=r"'Unheard'; available: .* --plugin=MODULE"):
        small_runs.experiment(config(**fields))


def test_a_mask_network_and_a_data_set_of_ones_own_are_trained_with():
    import_plugins(["example_plugin"])
    made, dataset, _ = small_runs.experiment(
        config(**{"method.name": "cat", "mask_net.name": "Squares", "batch_size": 16})
    )
    assert dataset.class_names == ("rows", "columns") and dataset.spec.num_classes == 2
    assert made.config.variant == "cat", "the variant was at, which is another method"
    state = jax.eval_shape(made.init)
    shapes = jax.tree.map(lambda leaf: leaf.shape, state.mask_net.params)
    assert shapes == {"Dense_0": {"kernel": (1, 1), "bias": (1,)}}
    batch = {"image": np.zeros((1, 16, 8, 8, 1), np.uint8), "label": np.zeros((1, 16), np.int32)}
    made.step_fn.lower(state, batch, jax.random.key(0))
    small_runs.experiment(config(batch_size=1))  # Which has no batch norm to refuse.


def test_an_attack_takes_fields_of_the_tests_and_a_name_that_is_free(monkeypatch):
    def attack(logits_fn, images, labels, keys, *, epsilon, step_size, kappa=3.0):
        return images

    fields = ("epsilon", "step_size")
    register(EvaluationAttack("of_two_fields", attack, fields, after="natural", queries=7))
    made = config(**{"evaluation": "of_two_fields", "test.step_size": "0.01"})
    natural, own = evaluation_attacks(settings.resolve(made))
    want = {"epsilon": 0.15, "step_size": 0.01, "kappa": 3.0}
    assert (natural.name, own.after.name, own.queries) == ("natural", "natural", 7)
    assert want.items() <= own.conditions.items()
    assert [*own.conditions["plugins"]] == [__name__]

    for record, message in (
        (EvaluationAttack("of_no_field", attack, ("epsilom",)), "no field test.epsilom; did you"),
        (EvaluationAttack("of_nobody", attack, after="nobody"), "follows 'nobody', which does not"),
        (EvaluationAttack("pgd20", attack), "the attack 'pgd20', which is a name in cat_jax"),
    ):
        monkeypatch.setattr(suites, "records_of", lambda kind, r=record: {r.name: r})
        with pytest.raises(UsageError, match=message):
            evaluation_attacks(settings.resolve(made))


def test_weights_of_a_network_that_is_not_registered_name_the_module(tmp_path):
    part = weights.weight_files.Part(
        {"params/w": np.ones(3, np.float32)},
        {"network": "OfAnother", "arguments": {}, "plugins": ["another_plugin"]},
    )
    (file,) = weights.weight_files.write(tmp_path / "w", "safetensors", {"classifier": part})
    with pytest.raises(UsageError, match=r"w.safetensors: .*OfAnother.*import another_plugin"):
        weights.load(file)
    assert "OfAnother" not in records_of(Classifier)
