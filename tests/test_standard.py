"""AutoAttack's cascade, in one function and over a data set: the same flags however it is cut."""

import functools
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compiled_names
from flax import linen as nn
from jax.tree_util import Partial

from cat_jax import attacks
from cat_jax.attacks.named import NamedAttack
from cat_jax.data import Split
from cat_jax.evaluation.evaluator import Evaluator

KEY = jax.random.key(0)
EPSILON = 0.06
SHORT = dict(num_steps=12, num_targets=9, num_queries=40)


class Net(nn.Module):
    """Two layers, in the precision of its images."""

    num_classes: int = 10

    @nn.compact
    def __call__(self, images, *, train=False):
        dense = functools.partial(nn.Dense, param_dtype=images.dtype, dtype=images.dtype)
        hidden = jnp.tanh(dense(32)(images.reshape(len(images), -1)))
        return dense(self.num_classes)(4 * hidden)


def problem(num_classes=10, num_examples=130):
    """(net, variables, split); one in ten is classified wrong."""
    r = np.random.default_rng(0)
    images = r.integers(0, 256, (num_examples, 5, 5, 2)).astype(np.uint8)
    unit = jnp.asarray(images) / 255.0
    net = Net(num_classes)
    variables = net.init(jax.random.key(1), unit[:1])
    labels = np.array(jnp.argmax(net.apply(variables, unit), -1), np.int32)
    labels[::10] = (labels[::10] + 1) % num_classes
    return net, variables, Split(unit if jax.config.jax_enable_x64 else images, labels)


def cascade(net, variables, split, *, batch_size=64, num_devices=1, epsilon=EPSILON, **budget):
    """Results by name: natural accuracy, and AutoAttack's four, each after the one before."""
    run = Evaluator(net.apply, jax.random.key(0), batch_size, jax.local_devices()[:num_devices])
    named = NamedAttack("natural", None)
    results = {"natural": run(variables, named, split)}
    for name, attack in attacks.standard_attacks(epsilon=epsilon, **(SHORT | budget)).items():
        before, named = results[named.name], NamedAttack(name, attack, after=named)
        results[name] = run(variables, named, split, before=before)
    return results


def flags(results):
    return {name: result.flags.tolist() for name, result in results.items()}


@pytest.fixture(scope="module")
def double():
    """The problem in float64. One network, so that `standard` is compiled for it once."""
    with jax.enable_x64(True):
        return problem()


@pytest.fixture(scope="module")
def whole(double):
    """The cascade in float64, in batches of 33 on one device."""
    with jax.enable_x64(True):
        return cascade(*double, batch_size=33)


def test_each_attack_sees_what_the_one_before_left(whole):
    counts = [int(result.flags.sum()) for result in whole.values()]
    assert counts[0] == 117 and counts[-1] > 20
    assert counts[0] > counts[1] > counts[2] >= counts[3] >= counts[4], counts
    assert [r.num_attacked for r in whole.values()] == [0, *counts[:-1]]


@pytest.mark.slow
@pytest.mark.parametrize("batch_size, num_devices", [(64, 4), (500, 1)])
def test_flags_depend_neither_on_the_batch_size_nor_on_the_devices(
    float64, double, whole, batch_size, num_devices
):
    found = cascade(*double, batch_size=batch_size, num_devices=num_devices)
    assert flags(found) == flags(whole)


@pytest.mark.slow
def test_the_function_is_the_union_of_the_four_and_many_classes_need_no_message(
    float64, double, whole, caplog
):
    net, variables, (images, labels) = double
    logits_fn = Partial(net.apply, variables)
    with caplog.at_level(logging.WARNING, "cat_jax"):
        found = attacks.standard(logits_fn, images, labels, KEY, epsilon=EPSILON, **SHORT)
    assert "margin" not in caplog.text
    natural, broken = (np.asarray(logits_fn(x).argmax(-1) != labels) for x in (images, found))
    kept = np.all(np.asarray(found == images), axis=(1, 2, 3))
    assert np.max(np.abs(found - images)) <= EPSILON + 1e-6
    assert 0 <= found.min() and found.max() <= 1
    assert np.all(kept[natural]), "what is wrong already is left alone"
    np.testing.assert_array_equal(kept[~natural], ~broken[~natural])
    for name, result in whole.items():
        # The noise is another; an example or two may fall to one start alone.
        assert np.sum((np.asarray(result.flags) != 1) & ~broken) <= 2, name


@pytest.mark.slow
def test_a_second_checkpoint_is_not_compiled_again(float64, double):
    net, variables, (images, labels) = double
    names = {}
    for factor in (1.0, 2.0):
        weights = jax.tree.map(lambda leaf, factor=factor: factor * np.asarray(leaf), variables)
        logits_fn = Partial(net.apply, weights)
        with compiled_names() as names[factor]:
            attacks.standard(logits_fn, images, labels, KEY, epsilon=EPSILON, **SHORT)
    assert not names[2.0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "num_classes, said",
    [(2, True), (3, True), (100, False)],
)
def test_few_classes_have_few_targets_and_the_margin_with_a_message(num_classes, said, caplog):
    made = problem(num_classes)
    with caplog.at_level(logging.WARNING, "cat_jax"):
        results = cascade(*made)
    assert ("margin" in caplog.text) == said
    assert results["natural"].accuracy == 0.9
    assert results["square"].accuracy <= results["apgd_ce"].accuracy < 0.9


@pytest.mark.slow
def test_a_dlr_ascent_on_two_classes_takes_the_margin_with_a_message(caplog):
    net, variables, (images, labels) = problem(2, 20)
    images = images / np.float32(255)
    with caplog.at_level(logging.WARNING, "cat_jax"):
        found = attacks.apgd(
            Partial(net.apply, variables),
            images,
            labels,
            KEY,
            epsilon=0.5,
            num_steps=5,
            loss=attacks.adversarial_logit_ratio,
        )
    assert "DLR needs three classes and got two: the margin" in caplog.text
    assert np.any(np.asarray(found) != images)


def test_a_model_that_is_wrong_everywhere_leaves_nothing_to_attack(float64, double):
    net, variables, (images, _) = double
    labels = np.array((net.apply(variables, images).argmax(-1) + 1) % 10, np.int32)
    results = cascade(net, variables, Split(np.asarray(images), labels))
    assert all(result.accuracy == 0 for result in results.values())
    assert all(result.num_attacked == 0 for result in results.values())
    logits_fn = Partial(net.apply, variables)
    found = attacks.standard(logits_fn, images, labels, KEY, epsilon=EPSILON, **SHORT)
    np.testing.assert_array_equal(found, images)


def test_a_ball_of_radius_0_holds_the_natural_image_alone(float64, double):
    net, variables, (images, labels) = double
    logits_fn = Partial(net.apply, variables)
    found = attacks.standard(logits_fn, images, labels, KEY, epsilon=0.0, **SHORT)
    np.testing.assert_array_equal(found, images)


@pytest.mark.slow
def test_a_union_keeps_the_first_success_and_goes_no_further_than_needed():
    """Example i is fooled by attack i; attack 3 would undo it all, and must not be run."""
    labels = jnp.zeros(3, jnp.int32)
    ran = []

    def logits_fn(images):
        fooled = images.sum((1, 2, 3)) > 0
        return jnp.stack([1.0 - fooled, fooled.astype(jnp.float32)], -1)

    def fools(number):
        def attack(logits_fn, images, labels, keys):
            jax.debug.callback(lambda: ran.append(number))
            return images + (number + 1.0) * (jnp.arange(3) == number).reshape(-1, 1, 1, 1)

        return attack

    undo = fools(3)
    worst = attacks.union([fools(0), fools(1), fools(2), undo])
    found = worst(logits_fn, jnp.zeros((3, 1, 1, 1)), labels, KEY)
    jax.effects_barrier()
    assert found.ravel().tolist() == [1.0, 2.0, 3.0]
    assert ran == [0, 1, 2]


@pytest.mark.slow
def test_the_attacks_of_a_union_draw_noise_of_their_own():
    def noise(logits_fn, images, labels, keys):
        return jax.vmap(lambda key: jax.random.uniform(key, (1, 1, 1)))(keys)

    def never(images):
        return jnp.stack([jnp.ones(len(images)), jnp.zeros(len(images))], -1)

    images, labels = jnp.zeros((4, 1, 1, 1)), jnp.zeros(4, jnp.int32)
    one, two = (attacks.union([noise] * n)(never, images, labels, KEY) for n in (1, 2))
    assert np.all(np.asarray(one != two))
