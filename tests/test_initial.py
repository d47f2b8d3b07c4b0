"""Training that begins with given weights: of a run, of a file, with another number of classes."""

import pathlib
import shutil

import chex
import jax
import jax.numpy as jnp
import pytest
import small_runs
from absl import flags
from absl.testing import flagsaver
from tiny_networks import TinyClassifier

from cat_jax.cli import command_line, modes
from cat_jax.cli.prepared import prepare
from cat_jax.errors import UsageError
from cat_jax.networks import SmallCNN
from cat_jax.training import initial
from cat_jax.weights import Loaded, trained


def loaded(network, seed=0):
    variables = network.init(jax.random.key(seed), jnp.zeros((1, 8, 8, 1)))
    return Loaded(network, {"batch_stats": {}, **variables}, "the file", "", {})


@pytest.mark.usefixtures("no_page")
def test_a_run_begins_with_the_classifier_of_another_and_resumes_without_it(finished, tmp_path):
    config = small_runs.quick_config(init_from=str(finished), num_steps=1, evaluation="none")
    config.optimizer.learning_rate = 0.0  # The run keeps what it begins with.
    assert modes.train(config, tmp_path / "run")
    given, kept = trained.load(finished), trained.load(tmp_path / "run", "last")
    chex.assert_trees_all_equal(
        kept.classifier.variables["params"], given.classifier.variables["params"]
    )
    assert kept.config.init_weights == initial.identity(str(finished))
    shutil.rmtree(finished)
    config.num_steps = 2
    assert modes.train(config, tmp_path / "run")
    assert trained.load(tmp_path / "run", "last").step == 2


@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")
def test_the_flag_sets_the_field():
    with flagsaver.flagsaver():
        command_line.read(flags.FLAGS, ["main", "--config=cat_jax:digits", "--init_from=~/plain"])
        assert command_line.CONFIG.value.init_from == str(pathlib.Path.home() / "plain")


def test_another_number_of_classes_keeps_the_new_last_layer_alone():
    given, own = loaded(TinyClassifier(num_classes=3)), loaded(TinyClassifier(), seed=1)
    variables, layer = initial.adopt(own.variables, given, own.network)
    assert layer == "params/Dense_0"
    params, head = variables["params"], own.variables["params"]["Dense_0"]
    chex.assert_trees_all_equal(params["Dense_0"], head)
    chex.assert_trees_all_equal(params["Conv_0"], given.variables["params"]["Conv_0"])


def test_another_network_and_weights_that_changed_are_refused(finished, tmp_path):
    own = loaded(TinyClassifier())
    with pytest.raises(UsageError, match=r"the file holds SmallCNN.*, and the run trains Tiny"):
        initial.adopt(own.variables, loaded(SmallCNN()), own.network)
    config = small_runs.quick_config(init_from=str(tmp_path / "absent"))
    with pytest.raises(UsageError, match="absent"):
        prepare(config, tmp_path / "run")
    with pytest.raises(UsageError, match=r"activation=silu, the run trains one with relu; set"):
        initial.adopt({}, loaded(SmallCNN(activation="silu")), SmallCNN())
    state = None
    with pytest.raises(UsageError, match=r"changed: their fingerprint was 0123 and is"):
        initial.begin(state, own.network, str(finished), "0123")
