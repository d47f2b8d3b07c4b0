"""Configs: every variant builds, conventions fill in what is not set, nonsense is refused."""

import contextlib

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_runs
from config_files import MODULES, SPECS, VARIANTS

from cat_jax import data
from cat_jax.attacks.starts import uniform_noise
from cat_jax.configs import digits, mnist, preact_cifar10, wrn_cifar10
from cat_jax.errors import UsageError
from cat_jax.experiment import schedules, settings
from cat_jax.experiment.experiment import build_experiment
from cat_jax.experiment.method import build_attack, build_method
from cat_jax.experiment.network import build_networks
from cat_jax.experiment.optimizer import build_optimizer
from cat_jax.training.timetable import Timetable
from cat_jax.types import MixedLabels, Views

NO_MASK = {"mask_net.name": "OnesMask"}
# Tracing takes a second to ten: the fast tests trace each variant on some network.
ALL = list(MODULES["digits"].VARIANTS)
FAST = {("digits", variant) for variant in ALL} | {("mnist", "cat_cw"), ("mnist", "trades")}


# Baselines keep their own published choices under either convention: see configs/default.py.
FAST_BY_CONVENTIONS = {
    "released": FAST,
    "paper": {("digits", "cat_cent"), ("digits", "cat_cw")},
}


@pytest.mark.parametrize(
    "name, variant, conventions",
    [
        pytest.param(name, variant, conventions, marks=pytest.mark.slow if slow else ())
        for conventions, fast in FAST_BY_CONVENTIONS.items()
        for name, variant in VARIANTS
        for slow in [(name, variant) not in fast]
    ],
)
def test_every_variant_builds_and_its_step_keeps_the_shapes_of_the_state(
    name, variant, conventions
):
    config = MODULES[name].get_config(variant)
    config.conventions = conventions
    config.batch_size = 4
    made = build_experiment(settings.resolve(config), SPECS[name], jax.local_devices()[:1])
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


def test_a_wide_network_has_the_depth_and_width_of_the_config():
    """That of the tables is the default; published weights are of WRN-28-10 too."""
    for sizes in ({}, {"depth": 28, "widen_factor": 4}):
        config = wrn_cifar10.get_config("cat_cw")
        config.classifier.update(sizes)
        network, _ = build_networks(settings.resolve(config), SPECS["wrn_cifar10"])
        wanted = {"depth": 34, "widen_factor": 10} | sizes
        assert {name: getattr(network, name) for name in wanted} == wanted


def test_without_normalisation_a_network_may_ignore_mean_and_std():
    config = mnist.get_config()
    config.classifier.update({"mean": (0.5,), "std": (0.5,), "normalize": False})
    network, _ = build_networks(settings.resolve(config), SPECS["mnist"])
    assert not hasattr(network, "mean")


def test_conventions_fill_in_what_is_not_set_and_only_that():
    config = mnist.get_config()
    released = settings.resolve(config)
    assert (released.mask_net.sees, released.attack.start_radius) == ("sum", 0.1)
    assert not released.attack.clip and released.method.certain == 1.0000001
    config.conventions, config.attack.clip = "paper", False
    paper = settings.resolve(config)
    assert (paper.mask_net.sees, paper.method.kl_p) == ("pair", "calibrated")
    assert paper.attack.start_radius == paper.attack.epsilon == 0.4
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
        clock = data.Clock(num_train, config.batch_size)
        _, rate = build_optimizer(optimizer, clock, config.num_epochs)
        for step, value in boundaries:
            np.testing.assert_allclose(rate(step), value, rtol=1e-5)
            np.testing.assert_allclose(rate(step - 1), 10 * value, rtol=1e-5)


def rates(overrides, steps):
    """Learning rates of 10 epochs of 8 steps each."""
    config = small_runs.config(**overrides)
    resolved = settings.resolve(config).optimizer
    rate = build_optimizer(resolved, data.Clock(80, 10), 10)[1]
    return [float(jax.jit(rate)(step)) for step in steps]


def test_a_rate_per_iteration_drops_where_the_fraction_of_epochs_says():
    """Rice et al.: the last update of an epoch already has the next one's rate."""
    drops = {
        "optimizer.learning_rate": 1.0,
        "optimizer.drop_epochs": (2, 4),
        "optimizer.drop_factors": (0.3, 0.5),
    }
    steps = [14, 15, 16, 30, 31, 32]
    whole = rates(drops, steps)
    np.testing.assert_allclose(whole, [1, 1, 0.3, 0.3, 0.3, 0.15], rtol=1e-6)
    fractions = rates(drops | {"optimizer.per": "iteration"}, steps)
    np.testing.assert_allclose(fractions, [1, 0.3, 0.3, 0.3, 0.15, 0.15], rtol=1e-6)


@pytest.mark.parametrize("per", ["epoch", "iteration"])
def test_cosine_and_cyclic_rates_in_closed_form(per):
    steps = np.arange(0, 80, 7)
    epochs = steps // 8 if per == "epoch" else (steps + 1) / 8
    both = {"optimizer.learning_rate": 0.2, "optimizer.per": per}
    cosine = rates(both | {"optimizer.schedule": "cosine"}, steps)
    np.testing.assert_allclose(cosine, 0.1 * (1 + np.cos(np.pi * epochs / 10)), atol=1e-7)
    cyclic = rates(both | {"optimizer.schedule": "cyclic"}, steps)
    np.testing.assert_allclose(
        cyclic, 0.2 * np.minimum(epochs / 4, (10 - epochs) / 6), rtol=1e-5, atol=1e-7
    )


def test_a_rate_warms_up_and_a_cosine_begins_after_it():
    """From an eighth of the peak: the first step is not lost."""
    steps = np.arange(0, 80, 5)
    warm = {"optimizer.learning_rate": 0.2, "optimizer.warmup_epochs": 2.0}
    grown = np.minimum((steps + 1) / 16, 1)
    np.testing.assert_allclose(rates(warm | {"optimizer.drop_epochs": ()}, steps), 0.2 * grown)
    cosine = rates(warm | {"optimizer.schedule": "cosine", "optimizer.per": "iteration"}, steps)
    share = np.maximum((steps + 1) / 8 - 2, 0) / 8
    np.testing.assert_allclose(
        cosine, 0.1 * grown * (1 + np.cos(np.pi * share)), rtol=1e-5, atol=1e-7
    )
    with pytest.raises(UsageError, match=r"warmup_epochs is 10; expected less than .* 10"):
        rates({"optimizer.warmup_epochs": 10}, steps)


def test_the_radius_of_the_attack_and_its_step_warm_up_together():
    config = small_runs.config(**{"attack.warmup_epochs": 2.0, "attack.epsilon": "0.3"})
    config = settings.resolve(config)
    schedules = build_method(config, data.Clock(80, 10)).schedules
    for name, value in (("epsilon", 0.3), ("step_size", config.attack.step_size)):
        grown = [float(schedules[name](step)) for step in (0, 7, 15, 16, 79)]
        np.testing.assert_allclose(grown, [value / 16, value / 2, value, value, value], rtol=1e-6)


@pytest.mark.parametrize("conventions", ["warmup", "released"])
def test_at_on_mnist_validates_within_the_first_epoch_at_the_full_radius(conventions):
    """So that a run that stays at one class warns of it there."""
    config = mnist.get_config("at")
    config.conventions = conventions
    config = settings.resolve(config)
    sizes = (60000 - config.num_validation, config.batch_size, config.save_every)
    timetable = Timetable(22000, *sizes, config.validation.every_epochs)
    first = next(step for step in range(1, 22000) if timetable.validates_at(step))
    assert config.attack.warmup_epochs <= timetable.epoch(first) < 1


@pytest.mark.parametrize(
    "settings_, steps, kept",
    [
        ({"kind": "moving", "decay": 0.9}, (0, 5), (0.9, 0.9)),
        ({"kind": "moving", "decay": 0.9, "start_epochs": 1}, (7, 8), (0, 0.9)),
        # min(decay, (1 + t) / (10 + t)), t from 0 at the first step of epoch 1.
        (
            {"kind": "moving", "decay": 0.5, "warmup": True, "start_epochs": 1},
            (7, 8, 9, 79),
            (0, 1 / 10, 2 / 11, 0.5),
        ),
        # Equal weights of the ends of epochs 1, 2, ...; the classifier before.
        (
            {"kind": "equal", "start_epochs": 1},
            (7, 14, 15, 16, 22, 23, 31),
            (0, 0, 0, 1, 1, 1 / 2, 2 / 3),
        ),
    ],
)
def test_averages_of_the_weights_in_closed_form(settings_, steps, kept):
    config = small_runs.config(**{f"average.{name}": value for name, value in settings_.items()})
    average = schedules.average(settings.resolve(config).average, data.Clock(80, 10))
    np.testing.assert_allclose([average(step) for step in steps], kept, rtol=1e-6)


def test_the_gradient_is_clipped_before_weight_decay_and_nesterov_looks_ahead():
    """As torch.nn.utils.clip_grad_norm_ and torch.optim.SGD(nesterov=True) do."""
    fields = {"max_norm": 1.0, "nesterov": True, "momentum": 0.9, "weight_decay": 0.1}
    config = small_runs.config(**{f"optimizer.{name}": value for name, value in fields.items()})
    config.optimizer.update(name="sgd", learning_rate=0.5, drop_epochs=())
    tx, _ = build_optimizer(settings.resolve(config).optimizer, data.Clock(80, 10), 10)
    params, gradient = jnp.array([2.0, -1.0]), jnp.array([3.0, 4.0])
    state, buffer = tx.init(params), 0.0
    for _ in range(2):
        updates, state = tx.update(gradient, state, params)
        decayed = gradient / 5 + 0.1 * params
        buffer = 0.9 * buffer + decayed
        np.testing.assert_allclose(updates, -0.5 * (decayed + 0.9 * buffer), rtol=1e-6)
        params = params + updates


def test_n_fgsm_steps_once_from_noise_that_is_wider_than_the_ball():
    config = settings.resolve(digits.get_config("n_fgsm"))
    radius, attack = config.threat.epsilon, config.attack
    assert (attack.num_steps, attack.step_size, attack.start_radius) == (1, radius, 2 * radius)
    assert attack.epsilon >= 3 * radius
    images, key = jnp.full((2, 3, 3, 1), 0.5), jax.random.key(0)
    weights = np.random.default_rng(0).normal(size=(1, 3, 3, 1))

    def apply(state, x):
        logit = jnp.sum(x * weights, axis=(1, 2, 3))
        return jnp.stack([logit, -logit], axis=-1), state

    adversarial, _ = build_attack(attack)(apply, None, images, jnp.zeros(2, int), key)
    noise = 2 * radius * uniform_noise(key, images)
    want = jnp.clip(images + noise - radius * np.sign(weights), 0, 1)
    np.testing.assert_allclose(adversarial, want, atol=1e-6)


@pytest.mark.parametrize("decay, decayed", [("all", {1, 2}), ("kernels", {2})])
def test_weight_decay_is_of_what_it_says(decay, decayed):
    config = small_runs.config(**{"optimizer.decay": decay, "optimizer.weight_decay": 0.1})
    resolved = settings.resolve(config).optimizer
    resolved = resolved.copy_and_resolve_references()
    resolved.name, resolved.momentum = "sgd", 0.0
    tx, _ = build_optimizer(resolved, data.Clock(80, 10), 10)
    params = {n: jnp.ones((2,) * n) for n in (1, 2)}
    zeros = jax.tree.map(jnp.zeros_like, params)
    updates, _ = tx.update(zeros, tx.init(params), params)
    assert {n for n in params if np.any(updates[n])} == decayed


def test_a_method_without_a_mask_network_takes_mixed_images():
    config = small_runs.quick_config(cutmix=0.5)
    method = build_method(settings.resolve(config), data.Clock(80, 10))
    labels = MixedLabels(jnp.array([0, 1]), jnp.array([1, 1]), jnp.array([0.75, 0.25]))
    logits = Views(natural=jnp.log(jnp.array([[0.2, 0.8], [0.2, 0.8]])))
    losses = [-0.75 * np.log(0.2) - 0.25 * np.log(0.8), -np.log(0.8)]
    np.testing.assert_allclose(method.classifier_loss(logits, labels), losses, rtol=1e-6)
    np.testing.assert_array_equal(method.mask_loss(logits, labels), 0.0)


def test_the_friendly_attacks_tau_follows_the_epochs():
    config = small_runs.config(**{"method.name": "fat", "attack.tau_epochs": (1, 3)} | NO_MASK)
    tau = build_method(settings.resolve(config), data.Clock(80, 10)).schedules["tau"]
    assert [int(tau(step)) for step in (0, 7, 8, 23, 24, 79)] == [0, 0, 1, 1, 2, 2]


def test_weight_perturbation_waits_for_its_warm_up():
    config = small_runs.config(**{"awp.gamma": 0.01, "awp.warmup_epochs": 2})
    gamma = build_method(settings.resolve(config), data.Clock(80, 10)).weight_perturbation
    np.testing.assert_allclose([gamma(step) for step in (0, 15, 16, 79)], [0, 0, 0.01, 0.01])


def test_radii_in_epsilons():
    config = mnist.get_config("trades")
    config.attack.epsilon = "0.3"
    resolved = settings.resolve(config)
    assert resolved.attack.step_size == 0.015
    assert resolved.attack.clip and resolved.attack.start == "gaussian"


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_training_attack_ends_at_the_edge_of_its_ball_in_either_norm(norm):
    """On a linear model it is x + epsilon times the steepest direction, in closed form."""
    config = digits.get_config()
    config.threat.norm, config.threat.epsilon, config.attack.start_radius = norm, "0.1", "0"
    weights = jax.random.normal(jax.random.key(0), (64,))

    def apply(state, images):
        score = images.reshape(len(images), -1) @ weights
        return jnp.stack([jnp.zeros_like(score), score], -1), state

    images, labels = jnp.full((3, 8, 8, 1), 0.5), jnp.array([0, 1, 0])
    attack = build_attack(settings.resolve(config).attack)
    adversarial, _ = attack(apply, (), images, labels, jax.random.key(1))
    steepest = weights / jnp.linalg.norm(weights) if norm == "l2" else jnp.sign(weights)
    delta = (adversarial - images).reshape(3, -1)
    expected = 0.1 * jnp.outer(jnp.array([1.0, -1.0, 1.0]), steepest)
    np.testing.assert_allclose(delta, expected, atol=1e-6)


def test_a_start_of_its_own_radius_is_refused_in_l2():
    config = digits.get_config()
    config.threat.norm, config.attack.start_radius = "l2", "0.1"
    with pytest.raises(UsageError, match=r"start_radius is 0.1 and the norm l2; expected 0 or eps"):
        build_attack(settings.resolve(config).attack)


@pytest.mark.parametrize(
    "overrides, message",
    [
        ({"attack.epsilon": "8"}, "attack.epsilon is 8; expected .* write 8/255"),
        ({"attack.start_radius": "1e400"}, "start_radius is '1e400'; expected a number such as"),
        ({"attack.epsilon": "8/0"}, "expected a number"),
        ({"test.step_size": "-0.1"}, r"expected \[0, 1\]"),
        ({"attack.epsilon": "nan"}, "expected a number"),
        ({"conventions": "mine"}, "available: paper, released, warmup"),
        ({"attack.loss": "hinge"}, "available: cross_entropy, margin, kl"),
        ({"classifier.name": "VGG"}, "available: .*SmallCNN"),
        ({"mask_net.name": "UNet"}, "available: SmallMask"),
        ({"method.name": "cats"}, "available: standard, at, trades"),
        ({"method.pairing": "cosine", "method.name": "alp"} | NO_MASK, "available: norm, mean"),
        ({"attack.batch_norm": "eval"}, "available: inference, training"),
        ({"attack.start": "normal"}, "available: uniform, gaussian"),
        ({"attack.step_size": "epsilon/zero"}, "expected a number"),
        ({"optimizer.schedule": "linear"}, "available: drops, cosine, cyclic"),
        ({"optimizer.per": "batch"}, "available: epoch, iteration"),
        ({"optimizer.decay": "none"}, "available: all, kernels"),
        ({"optimizer.drop_factors": (0.1, 0.2)}, r"config\.optimizer.* 2 values for 1 drop_epochs"),
        ({"mask_optimizer.warmup_epochs": 99.0}, r"config\.mask_optimizer\.warmup_epochs is 99"),
        ({"attack.loss": "kl", "attack.start_radius": "0"}, "so the attack would not move"),
        ({"num_parts": 3}, "does not divide over 1 devices in 3 parts each.*multiple of 3"),
        ({"average.decay": 1.0}, "expected at least 0, less than 1"),
        ({"cutmix": 1.5}, "expected a probability"),
        ({"cutmix": 0.5, "method.name": "fat"} | NO_MASK, "compares predictions with one label"),
        ({"awp.gamma": -0.1}, "expected at least 0"),
        ({"optimizer.name": "lion"}, "available: sgd, adam"),
        ({"augment": "mixup"}, "available: none, crop_flip"),
        ({"validation.chosen_by": "natural"}, "available: sum, robust"),
        ({"evaluation": "all"}, "available: none, quick, paper, curve"),
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


@pytest.mark.parametrize(
    "num_devices, overrides, remedies",
    [
        (1, {"batch_size": 1}, "config.batch_size to 2 or more."),
        (1, {"batch_size": 2, "num_parts": 2}, "batch_size to 4 or more or config.num_parts to 1."),
        (4, {"batch_size": 4, "sync_batch_norm": False}, "or config.sync_batch_norm to True."),
        (4, {"batch_size": 4}, None),
        (1, {"batch_size": 1, "classifier.name": "SmallCNN"}, None),
    ],
)
def test_one_value_per_channel_has_no_variance_and_is_refused_before_the_step_is_traced(
    num_devices, overrides, remedies
):
    """8x8 images are one pixel behind three strides."""
    config = MODULES["digits"].get_config("at")
    config.update_from_flattened_dict({"classifier.name": "PreActResNet18"} | overrides)
    devices = jax.local_devices()[:num_devices]
    with contextlib.ExitStack() as stack:
        if remedies:
            stack.enter_context(pytest.raises(UsageError, match=f"no variance. .*{remedies}$"))
        build_experiment(settings.resolve(config), SPECS["digits"], devices)


def test_a_batch_that_does_not_divide_over_the_devices_is_refused():
    with pytest.raises(UsageError, match="Batch size 10 does not divide over 4 devices"):
        small_runs.experiment(small_runs.config(batch_size=10), num_devices=4)


def test_an_unknown_variant_names_those_that_there_are():
    with pytest.raises(UsageError, match="'cat_cwe' is unknown; available: cat_cent, cat_cw"):
        digits.get_config("cat_cwe")


def test_a_run_begins_with_the_same_bits_each_time_and_with_the_weights_of_init():
    made, *_ = small_runs.experiment(small_runs.config())
    begun = made.begin()
    chex.assert_trees_all_equal(made.begin(), begun)
    chex.assert_trees_all_close(begun, made.init(), rtol=1e-6)  # Another program: it may round.
