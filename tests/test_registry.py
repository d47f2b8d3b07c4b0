"""Records: what a name stands for, who may take it, and which networks training can run."""

import functools
import pathlib
import re

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import linen as nn

from cat_jax.errors import UsageError
from cat_jax.networks import Classifier, MaskNet, WideResNet
from cat_jax.networks.norm import BatchNorm
from cat_jax.networks.record import named, record_of
from cat_jax.runtime.registry import find, records_of, register, temporary_records
from cat_jax.step.phases import forward
from cat_jax.step.state import init_network

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def forgets_the_names_of_a_test():
    with temporary_records():
        yield


class Linear(nn.Module):
    """Without batch norm or dropout, it need not know that it is trained."""

    num_classes: int = 10
    width: int = 3

    @nn.compact
    def __call__(self, images):
        x = nn.Dense(self.width)(images.reshape(len(images), -1))
        return nn.Dense(self.num_classes)(x)


IMAGES = jnp.zeros((2, 4, 4, 1))


def init(module, output_shape=(2, 10)):
    return init_network(
        module, optax.sgd(0.1), jax.random.key(0), IMAGES, output_shape=output_shape
    )


def test_a_name_belongs_to_the_module_that_registered_it():
    register(Classifier("OfThisTest", Linear))
    again = Classifier("OfThisTest", functools.partial(Linear, width=5))
    register(again)  # As a notebook's cell does when it is run again.
    assert find(Classifier, "name", "OfThisTest") is again
    assert named("OfThisTest").build(num_classes=4, sees="sum") == Linear(4, 5)
    with pytest.raises(UsageError, match=r"test_registry.py registers the Classifier 'SmallC"):
        register(Classifier("SmallCNN", Linear))
    assert find(Classifier, "name", "SmallCNN").make is not Linear
    with pytest.raises(UsageError, match="SmallCNN is a classifier's name"):
        MaskNet("SmallCNN", Linear)


@pytest.mark.parametrize("wrong", [Linear, "Linear", nn.Dense(3)])
def test_what_is_no_record_is_refused(wrong):
    with pytest.raises(UsageError, match=r"expected records: objects of .*Classifier, MaskNet"):
        register(wrong)


def test_methods_are_looked_up_where_ours_are_registered():
    """A module that looked one up without this import would not find it in a new process."""
    sources = {path: path.read_text() for path in (ROOT / "cat_jax").rglob("*.py")}
    lookups = re.compile(r"(find|records_of)\(NamedMethod")
    readers = {str(path.relative_to(ROOT)) for path in sources if lookups.search(sources[path])}
    assert readers == {"cat_jax/experiment/method.py"}


def test_an_unknown_name_is_answered_with_those_there_are_and_how_to_add_one():
    with pytest.raises(UsageError, match=r"x is 'VGG'; available: .*WideResNet.*--plugin=MODULE"):
        find(Classifier, "x", "VGG")


@pytest.mark.parametrize("name", records_of(Classifier))
def test_the_arguments_of_a_network_build_it_again(name):
    record = named(name)
    module = record.build(num_classes=7, mean=(0.5,), std=(0.2,), depth=10, axis_name="devices")
    arguments = record.arguments_of(module)
    assert arguments["num_classes"] == 7 and "axis_name" not in arguments
    again = record.build(**arguments)
    assert record.arguments_of(again) == arguments and type(again) is type(module)
    assert record_of(module) is record


def test_what_a_partial_has_set_is_not_set_again():
    register(Classifier("WRN-16", functools.partial(WideResNet, depth=16), fields=("depth",)))
    assert named("WRN-16").build(depth=34, num_classes=5).depth == 16


def test_a_network_without_batch_norm_need_not_take_train():
    state = init(Linear())
    for train in (False, True):
        logits, after = forward(Linear(), state, IMAGES, train=train)
        assert logits.shape == (2, 10) and after.batch_stats == {}


class Needs(nn.Module):
    """What a part in it needs of a training step."""

    part: str

    @nn.compact
    def __call__(self, images, *, train=False):
        x = images.reshape(len(images), -1)
        if self.part == "dropout":
            x = nn.Dropout(0.5, deterministic=not train)(x)
        if self.part == "cache":
            self.variable("cache", "seen", jnp.zeros, ())
        return x if self.part == "logits" else nn.Dense(10)(x)


class NormOfOneMode(nn.Module):
    @nn.compact
    def __call__(self, images):
        return nn.Dense(10)(BatchNorm()(images).reshape(len(images), -1))


class NoDefault(nn.Module):
    def __call__(self, images, *, train):
        return images


def test_a_network_that_training_cannot_run_is_refused_with_the_remedy():
    with pytest.raises(UsageError, match=r"Needs returns \(2, 16\) for images of \(2, 4, 4, 1\); "):
        init(Needs("logits"))
    with pytest.raises(UsageError, match="Needs has variables in cache; training supports params"):
        init(Needs("cache"))
    with pytest.raises(
        UsageError, match="NormOfOneMode has batch norm but no argument train; write"
    ):
        init(NormOfOneMode())
    with pytest.raises(UsageError, match="x takes train= without a default of False"):
        Classifier("x", NoDefault)
    state = init(Needs("dropout"))
    with pytest.raises(UsageError, match="Needs draws random numbers in training, as dropout"):
        forward(Needs("dropout"), state, IMAGES, train=True)
