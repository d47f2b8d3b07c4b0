"""Each call evaluates the current function; only another computation compiles again."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compiled_names
from flax import linen as nn
from flax import nnx
from jax.tree_util import Partial
from slow_cases import all_slow_but

from cat_jax import attacks, losses
from cat_jax.errors import UsageError
from cat_jax.evaluation import checks

KEY = jax.random.key(0)
IMAGES = np.random.default_rng(0).uniform(0.3, 0.7, (6, 2, 2, 1)).astype(np.float32)
LABELS = np.array([0, 1, 2, 0, 1, 2])
FIRST, SECOND = (
    np.random.default_rng(seed).normal(size=(4, 3)).astype(np.float32) for seed in (1, 2)
)
FGSM = functools.partial(attacks.fgsm, epsilon=0.1)


def linear(images, weights):
    return images.reshape(len(images), -1) @ weights


def want(weights, scale=1.0):
    """FGSM's images on the linear classifier, in NumPy."""
    logits = scale * linear(IMAGES, weights)
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    gradient = scale * ((p - np.eye(3)[LABELS]) @ weights.T).reshape(IMAGES.shape)
    return np.clip(IMAGES + 0.1 * np.sign(gradient), 0, 1)


def assert_follows(logits_fn, change, attack=FGSM):
    """What it finds is that of FIRST, and after the change that of SECOND."""
    for weights in (FIRST, SECOND):
        adversarial = attack(logits_fn, IMAGES, LABELS, KEY)
        np.testing.assert_allclose(adversarial, want(weights), atol=1e-6)
        change()
    assert np.abs(want(FIRST) - want(SECOND)).max() > 0.1


GLOBAL = jnp.asarray(FIRST)


def reads_a_global(images):
    return linear(images, GLOBAL)


def change_the_global():
    global GLOBAL
    GLOBAL = jnp.asarray(SECOND)


class Holder:
    """An object that is called, and changed."""

    def __init__(self, kind):
        self.weights = kind(FIRST)

    def __call__(self, images):
        return linear(images, self.weights)

    def logits(self, images):
        return self(images)

    def change(self):
        self.weights = jnp.asarray(SECOND)


def test_a_global():
    assert_follows(reads_a_global, change_the_global)


@pytest.mark.parametrize("kind", [jnp.asarray, np.array], ids=["jax", "numpy"])
def test_a_closure_whose_array_is_bound_again(kind):
    weights = kind(FIRST)

    def change():
        nonlocal weights
        weights = kind(SECOND)

    assert_follows(lambda images: linear(images, weights), change)


def test_a_numpy_array_that_is_changed_in_place():
    weights = FIRST.copy()
    assert_follows(lambda images: linear(images, weights), lambda: np.copyto(weights, SECOND))


def test_a_dictionary_of_parameters():
    params = {"w": jnp.asarray(FIRST)}
    assert_follows(
        lambda images: linear(images, params["w"]),
        lambda: params.update(w=jnp.asarray(SECOND)),
    )


@pytest.mark.parametrize("kind", [jnp.asarray, np.array], ids=["jax", "numpy"])
def test_an_object_and_its_method(kind):
    holder = Holder(kind)
    assert_follows(holder, holder.change)
    holder = Holder(kind)
    assert_follows(holder.logits, holder.change)


def test_a_number_and_a_function_that_a_function_reads():
    scale, activation = 1.0, jnp.negative

    def classify(images):
        return scale * activation(linear(images, FIRST))

    np.testing.assert_allclose(FGSM(classify, IMAGES, LABELS, KEY), want(FIRST, -1.0), atol=1e-6)
    scale = -1.0
    np.testing.assert_allclose(FGSM(classify, IMAGES, LABELS, KEY), want(FIRST), atol=1e-6)
    activation = jnp.positive
    np.testing.assert_allclose(FGSM(classify, IMAGES, LABELS, KEY), want(FIRST, -1.0), atol=1e-6)


def test_what_the_function_of_a_partial_reads():
    scale, offset = 1.0, jnp.asarray(FIRST)
    logits_fn = Partial(lambda w, images: scale * linear(images, w + offset), jnp.zeros((4, 3)))
    np.testing.assert_allclose(FGSM(logits_fn, IMAGES, LABELS, KEY), want(FIRST), atol=1e-6)
    scale = -1.0
    np.testing.assert_allclose(FGSM(logits_fn, IMAGES, LABELS, KEY), want(FIRST, -1.0), atol=1e-6)
    scale, offset = 1.0, jnp.asarray(SECOND)
    np.testing.assert_allclose(FGSM(logits_fn, IMAGES, LABELS, KEY), want(SECOND), atol=1e-6)


class Linear(nnx.Module):
    def __init__(self, weights):
        self.weights, self.scale = nnx.Param(jnp.asarray(weights)), 1.0

    def __call__(self, images):
        return self.scale * linear(images, self.weights[...])


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: lambda images: m(images)])
def test_an_nnx_module_itself_and_in_a_lambda(wrap):
    model = Linear(FIRST)
    assert_follows(wrap(model), lambda: model.weights.set_value(jnp.asarray(SECOND)))
    model.scale = -1.0
    np.testing.assert_allclose(
        FGSM(wrap(model), IMAGES, LABELS, KEY), want(SECOND, -1.0), atol=1e-6
    )


def test_an_equinox_module_in_a_closure():
    eqx = pytest.importorskip("equinox")

    class Classifier(eqx.Module):
        weights: jax.Array

        def __call__(self, images):
            return linear(images, self.weights)

    model = Classifier(jnp.asarray(FIRST))

    def change():
        nonlocal model
        model = eqx.tree_at(lambda m: m.weights, model, jnp.asarray(SECOND))

    assert_follows(lambda images: model(images), change)


def test_a_haiku_network_in_a_closure():
    hk = pytest.importorskip("haiku")

    def forward(images):
        return hk.Linear(3, with_bias=False)(images.reshape(len(images), -1))

    network = hk.without_apply_rng(hk.transform(forward))
    params = {"linear": {"w": jnp.asarray(FIRST)}}

    def change():
        nonlocal params
        params = {"linear": {"w": jnp.asarray(SECOND)}}

    assert_follows(lambda images: network.apply(params, images), change)


class Flat(nn.Module):
    @nn.compact
    def __call__(self, images):
        return nn.Dense(3, use_bias=False)(images.reshape(len(images), -1))


class Scaled(nn.Module):
    @nn.compact
    def __call__(self, images):
        return SCALE * linear(images, self.param("w", nn.initializers.ones, (4, 3)))


SCALE = 1.0


def test_a_number_that_a_linen_module_reads():
    global SCALE
    logits_fn = Partial(Scaled().apply, {"params": {"w": jnp.asarray(FIRST)}})
    for SCALE in (1.0, -1.0):
        np.testing.assert_allclose(
            FGSM(logits_fn, IMAGES, LABELS, KEY), want(FIRST, SCALE), atol=1e-6
        )


def test_a_derivative_of_ones_own():
    slope = 1.0

    @jax.custom_vjp
    def identity(x):
        return x

    identity.defvjp(lambda x: (x, None), lambda _, ct: (slope * ct,))
    weights = jnp.asarray(FIRST)

    def classify(images):
        return linear(identity(images), weights)

    np.testing.assert_allclose(FGSM(classify, IMAGES, LABELS, KEY), want(FIRST), atol=1e-6)
    slope = -1.0
    downhill = np.clip(2 * IMAGES - want(FIRST), 0, 1)
    np.testing.assert_allclose(FGSM(classify, IMAGES, LABELS, KEY), downhill, atol=1e-6)


@pytest.mark.parametrize("name", all_slow_but(["pgd"], ["pgd", "apgd"]))
def test_a_loss_that_closes_over_a_number_or_an_array(name):
    attack = {
        "pgd": functools.partial(attacks.pgd, step_size=0.1, num_steps=1, random_start=False),
        "apgd": functools.partial(attacks.apgd, num_steps=1, start=IMAGES),
    }[name]
    target, sign = jnp.array([1, 2, 0, 1, 2, 0]), -1.0

    def towards(logits, labels):
        return sign * losses.cross_entropy(logits.adversarial, target)

    logits_fn = Partial(lambda w, x: linear(x, w), jnp.asarray(FIRST))
    keep = jnp.asarray(linear(IMAGES, FIRST).argmax(-1))
    once = attack(logits_fn, IMAGES, keep, KEY, epsilon=0.1, loss=towards)
    sign = 1.0
    uphill = attack(logits_fn, IMAGES, keep, KEY, epsilon=0.1, loss=towards)
    target, sign = jnp.array([2, 0, 1, 2, 0, 1]), -1.0
    other = attack(logits_fn, IMAGES, keep, KEY, epsilon=0.1, loss=towards)
    if name == "pgd":
        np.testing.assert_allclose(uphill - IMAGES, IMAGES - once, atol=1e-6)
    assert np.abs(once - uphill).max() > 0.05 and np.abs(once - other).max() > 0.05


def test_a_loss_that_is_a_dataclass_with_an_array():
    @dataclasses.dataclass
    class Weighted:
        weights: jax.Array

        def __call__(self, logits, labels):
            return self.weights * losses.cross_entropy(logits.adversarial, labels)

    attack = functools.partial(FGSM, Partial(lambda w, x: linear(x, w), jnp.asarray(FIRST)))
    adversarial = attack(IMAGES, LABELS, KEY, loss=Weighted(jnp.ones(6).at[2].set(0.0)))
    np.testing.assert_array_equal(adversarial[2], IMAGES[2])
    np.testing.assert_allclose(
        np.delete(adversarial, 2, 0), np.delete(want(FIRST), 2, 0), atol=1e-6
    )


def test_a_loss_of_every_class_is_refused():
    def of_each_class(logits, labels):
        return logits.adversarial

    with pytest.raises(UsageError, match=r"loss returns \(6, 3\); expected one value for each"):
        FGSM(lambda x: linear(x, FIRST), IMAGES, LABELS, KEY, loss=of_each_class)


MANY = {
    "pgd": functools.partial(attacks.pgd, step_size=0.1, num_steps=2),
    "apgd": functools.partial(attacks.apgd, num_steps=2),
    "fab_t": functools.partial(attacks.fab_t, num_steps=2),
    "square": functools.partial(attacks.square, num_queries=2),
}


@pytest.mark.parametrize("name", all_slow_but(["pgd", "square"], MANY))
def test_other_arrays_compile_nothing_again_and_another_computation_does(name):
    weights, scale = FIRST, 1.0

    def classify(images):
        return scale * linear(jax.nn.relu(images), weights)

    MANY[name](classify, IMAGES, LABELS, KEY, epsilon=0.1)
    with compiled_names() as names:
        weights = SECOND.copy()
        MANY[name](classify, IMAGES, LABELS, KEY, epsilon=0.1)
    assert not names, names
    with compiled_names() as names:
        scale = 2.0
        MANY[name](classify, IMAGES, LABELS, KEY, epsilon=0.1)
    assert len(names) == 1, names


def test_functions_that_change_places():
    """Which is read where counts, not only which are read."""
    first, second, third = jnp.negative, jnp.positive, jnp.negative

    def classify(images):
        return third(first(second(linear(images, jnp.eye(4, 3)))))

    eye = np.eye(4, 3, dtype=np.float32)
    np.testing.assert_allclose(FGSM(classify, IMAGES, LABELS, KEY), want(eye), atol=1e-6)
    third = second
    np.testing.assert_allclose(FGSM(classify, IMAGES, LABELS, KEY), want(eye, -1.0), atol=1e-6)


def test_a_lambda_made_anew_at_each_call_compiles_nothing_again():
    def attacked(weights):
        return FGSM(lambda x: linear(jax.nn.relu(x), weights), IMAGES, LABELS, KEY)

    first, second = jnp.asarray(FIRST), jnp.asarray(SECOND)
    attacked(first)
    with compiled_names() as names:
        attacked(second)
    assert not names, names


@pytest.mark.parametrize("bind", [lambda f: f, lambda f: functools.partial(f, mutable=False)])
def test_a_partial_of_a_module_is_not_traced_again_for_other_weights(bind, monkeypatch):
    """So a call costs little more than the compiled program."""
    traces, dense = [], nn.Dense.__call__

    def counted(layer, inputs):
        traces.append(inputs.shape)
        return dense(layer, inputs)

    monkeypatch.setattr(nn.Dense, "__call__", counted)
    apply = bind(Flat().apply)

    def attacked(weights):
        logits_fn = Partial(apply, {"params": {"Dense_0": {"kernel": jnp.asarray(weights)}}})
        return FGSM(logits_fn, IMAGES, LABELS, KEY)

    np.testing.assert_allclose(attacked(FIRST), want(FIRST), atol=1e-6)
    assert traces
    traces.clear()
    np.testing.assert_allclose(attacked(SECOND), want(SECOND), atol=1e-6)
    assert not traces


def test_inside_a_callers_own_jit():
    """Each trace of the caller sees the function anew, also over the caller's own tracers."""
    weights = jnp.asarray(FIRST)

    def attacked(images):
        return FGSM(lambda x: linear(x, weights), images, LABELS, KEY)

    np.testing.assert_allclose(jax.jit(attacked)(IMAGES), want(FIRST), atol=1e-6)
    weights = jnp.asarray(SECOND)
    np.testing.assert_allclose(jax.jit(lambda x: attacked(x))(IMAGES), want(SECOND), atol=1e-6)

    @jax.jit
    def of_weights(w):
        return FGSM(lambda x: linear(x, w), IMAGES, LABELS, KEY)

    for w in (FIRST, SECOND):
        np.testing.assert_allclose(of_weights(w), want(w), atol=1e-6)
    both = jax.vmap(of_weights)(jnp.stack([FIRST, SECOND]))
    np.testing.assert_allclose(both, [want(FIRST), want(SECOND)], atol=1e-6)


@pytest.mark.slow
def test_examine_sees_that_weights_became_nan():
    weights = jnp.asarray(FIRST)

    def classify(images):
        return linear(images, weights)

    labels = linear(IMAGES, FIRST).argmax(-1)
    for is_finite in (True, False):
        findings = checks.examine(classify, IMAGES, labels, KEY, epsilon=0.1)
        passed = {finding.name: finding.passed for finding in findings}
        assert passed["finite_logits"] == passed["finite_gradients"] == is_finite
        weights = weights.at[0, 0].set(jnp.nan)


@pytest.mark.slow
def test_the_other_attacks_follow_too():
    weights = jnp.asarray(FIRST)
    labels = linear(IMAGES, FIRST).argmax(-1)

    def classify(images):
        return linear(images, weights)

    for attack in (
        functools.partial(attacks.cw_l2, num_steps=20, num_searches=4, learning_rate=0.1),
        functools.partial(attacks.standard, epsilon=0.5, num_steps=3, num_targets=1, num_queries=2),
    ):
        weights = jnp.asarray(FIRST)
        before = attack(classify, IMAGES, labels, KEY)
        weights = -weights
        np.testing.assert_array_equal(attack(classify, IMAGES, labels, KEY), IMAGES)
        assert np.abs(before - IMAGES).max() > 0.01
