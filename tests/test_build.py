"""Configs: every variant builds, conventions fill in what is not set, nonsense is refused."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_runs

from cat_jax import build, data, settings
from cat_jax.configs import digits, mnist, preact_cifar10, wrn_cifar10
from cat_jax.types import UsageError

SPECS = {
    "digits": data.Spec((8, 8, 1), 10, 1437),
    "mnist": data.Spec((28, 28, 1), 10, 60_000),
    "preact_cifar10": data.Spec((32, 32, 3), 10, 50_000),
    "wrn_cifar10": data.Spec((32, 32, 3), 10, 50_000),
    "preact_cifar100": data.Spec((32, 32, 3), 100, 50_000),
}
MODULES = {name: importlib.import_module(f"cat_jax.configs.{name}") for name in SPECS}
CASES = [(name, variant) for name in SPECS for variant in MODULES[name].VARIANTS]
FULL = "wrn_cifar10"  # Tracing it takes 10 s: the fast tests trace one variant.


@pytest.mark.parametrize("conventions", ["released", "paper"])
@pytest.mark.parametrize(
    "name, variant",
    [
        pytest.param(name, variant, marks=pytest.mark.slow if slow else ())
        for name, variant in CASES
        for slow in [name == FULL or variant in ("at", "standard")]
    ],
)
def test_every_variant_builds_and_its_step_keeps_the_shapes_of_the_state(
    name, variant, conventions
):
    config = MODULES[name].get_config(variant)
    config.conventions = conventions
    config.batch_size = 4
    made = build.experiment(settings.resolve(config), SPECS[name], jax.local_devices()[:1])
    state = jax.eval_shape(made.init)
    batch = {
        "image": jax.ShapeDtypeStruct((1, 4, *SPECS[name].image_shape), jnp.uint8),
        "label": jax.ShapeDtypeStruct((1, 4), jnp.int32),
    }
    after, metrics = jax.eval_shape(made.step_fn, state, batch, jax.random.key(0))

    def describe(tree):
        return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)

    assert describe(after) == describe(state)
    assert set(metrics) == {"classifier_loss", "mask_loss", "mask"}
    assert all(value.shape == () for value in metrics.values())


def test_conventions_fill_in_what_is_not_set_and_only_that():
    config = mnist.get_config()
    released = settings.resolve(config)
    assert (released.mask_net.sees, released.attack.start_radius) == ("sum", "0.1")
    assert not released.attack.clip and released.method.certain == 1.0000001
    config.conventions, config.attack.clip = "paper", False
    paper = settings.resolve(config)
    assert (paper.mask_net.sees, paper.method.kl_p) == ("pair", "calibrated")
    assert paper.attack.start_radius == paper.attack.epsilon == "0.4"
    assert not paper.attack.clip and paper.validation.clip
    assert config.mask_net.sees is None, "resolve must leave its argument as it was"


@pytest.mark.parametrize(
    "module, conventions, boundaries",
    [
        (mnist, "released", [(31 * 550, 1e-4)]),
        (mnist, "paper", [(30 * 550, 1e-4)]),
        (preact_cifar10, "released", [(38282, 0.01), (45938, 0.001)]),
        (wrn_cifar10, "released", [(38282, 0.01), (42110, 0.001)]),
        (wrn_cifar10, "paper", [(38282, 0.01), (45938, 0.001)]),
    ],
)
def test_learning_rates_drop_at_the_first_step_of_the_epoch(module, conventions, boundaries):
    config = module.get_config()
    config.conventions = conventions
    config = settings.resolve(config)
    num_train = {"mnist": 60_000, "cifar10": 50_000}[config.dataset] - config.num_validation
    for optimizer in (config.optimizer, config.mask_optimizer):
        _, rate = build.build_optimizer(optimizer, num_train, config.batch_size)
        for step, value in boundaries:
            np.testing.assert_allclose(rate(step), value, rtol=1e-5)
            np.testing.assert_allclose(rate(step - 1), 10 * value, rtol=1e-5)


@pytest.mark.parametrize(
    "overrides, message",
    [
        ({"attack.epsilon": "8"}, "attack.epsilon is 8; expected .* write 8/255"),
        ({"attack.epsilon": "8/0"}, "expected a number"),
        ({"test.step_size": "-0.1"}, r"expected \[0, 1\]"),
        ({"attack.epsilon": "nan"}, "expected a number"),
        ({"conventions": "mine"}, "available: paper, released"),
        ({"attack.loss": "hinge"}, "available: cross_entropy, margin, kl"),
        ({"classifier.name": "VGG"}, "available: SmallCNN"),
        ({"mask_net.name": "UNet"}, "available: SmallMask"),
        ({"method.name": "cats"}, "available: standard, at, cat"),
        ({"optimizer.name": "lion"}, "available: sgd, adam"),
        ({"augment": "mixup"}, "available: none, crop_flip"),
        ({"evaluation": "all"}, "available: paper, quick, none"),
        ({"dataset": "svhn"}, "available: cifar10"),
        ({"num_validation": 9999}, "has 256 training examples"),
        ({"method.name": "at"}, "set config.mask_net.name to OnesMask"),
        ({"classifier.mean": (0.5,)}, "leave them empty"),
        ({"batch_size": 0}, "expected at least 1"),
        ({"num_steps": -1}, "expected at least 0"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_remedy(overrides, message):
    with pytest.raises(UsageError, match=message) as error:
        small_runs.experiment(small_runs.config(**overrides))
    assert "\n" not in str(error.value)


def test_a_batch_that_does_not_divide_over_the_devices_is_refused():
    with pytest.raises(UsageError, match="Batch size 10 does not divide over 4 devices"):
        small_runs.experiment(small_runs.config(batch_size=10), num_devices=4)


@pytest.mark.parametrize(
    "text, value", [("8/255", 8 / 255), ("0.0314", 0.0314), ("0", 0), ("1", 1)]
)
def test_radii_are_fractions_or_decimals(text, value):
    assert settings.radius("attack.epsilon", text) == pytest.approx(value, abs=1e-15)


def test_an_unknown_variant_names_those_that_there_are():
    with pytest.raises(UsageError, match="'cat_cwe' is unknown; available: cat_cent, cat_cw"):
        digits.get_config("cat_cwe")


def test_equal_configs_have_equal_fingerprints():
    one, two = (settings.fingerprint(settings.resolve(digits.get_config())) for _ in range(2))
    assert one == two
    assert one != settings.fingerprint(settings.resolve(digits.get_config("cat_cw")))
    elsewhere = digits.get_config()
    elsewhere.data_dir = "/elsewhere"
    assert one == settings.fingerprint(settings.resolve(elsewhere)), "the data have their own"
