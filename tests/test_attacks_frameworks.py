"""The public attacks on classifiers of other frameworks, all with the same weights.

Each function named after a framework returns (load, passed): `load` makes its classifier of
weights, as restoring a checkpoint would, and `passed` is how an attack is given it. Both belong to
one architecture: it is what the attacks are compiled for, and the weights are traced.
"""

import functools
from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compiled_names
from flax import nnx
from jax.tree_util import Partial
from slow_cases import all_slow_but

from cat_jax import attacks

SIZE, HIDDEN, CLASSES, EPSILON = 6, 16, 5, 0.1
KEY = jax.random.key(0)
ATTACKS = {
    "pgd": functools.partial(attacks.pgd, step_size=0.04, num_steps=4),
    "apgd": functools.partial(attacks.apgd, num_steps=4),
    "square": functools.partial(attacks.square, num_queries=20),
    "fab_t": functools.partial(attacks.fab_t, num_steps=4, num_targets=2),
}


def checkpoint(seed):
    """(kernel [I, O], bias [O]) of the two layers, in float64."""
    r = np.random.RandomState(seed)
    shapes = (SIZE * SIZE, HIDDEN), (HIDDEN, CLASSES)
    return [
        (jnp.asarray(r.normal(size=s) / s[0] ** 0.5), jnp.asarray(0.1 * r.normal(size=s[1])))
        for s in shapes
    ]


def plain():
    """Any function of images. The arrays that it closes over become arguments."""

    def load(weights):
        (kernel, bias), (last_kernel, last_bias) = weights

        def classify(images):
            x = jnp.tanh(images.reshape(len(images), -1) @ kernel + bias[None])
            return x @ last_kernel + last_bias[None]

        return classify

    return load, lambda function: function


def linen():
    """The bound `apply` of one module object over variables. Another object compiles anew."""

    class Classifier(nn.Module):
        @nn.compact
        def __call__(self, images):
            x = jnp.tanh(nn.Dense(HIDDEN, name="hidden")(images.reshape(len(images), -1)))
            return nn.Dense(CLASSES, name="last")(x)

    module = Classifier()

    def load(weights):
        layers = [dict(kernel=kernel, bias=bias) for kernel, bias in weights]
        return {"params": dict(zip(["hidden", "last"], layers, strict=True))}

    return load, lambda variables: Partial(module.apply, variables)


def nnx_classifier():
    """NNX: (load, the graph of what it loads)."""

    class Classifier(nnx.Module):
        def __init__(self, rngs):
            self.hidden = nnx.Linear(SIZE * SIZE, HIDDEN, rngs=rngs)
            self.last = nnx.Linear(HIDDEN, CLASSES, rngs=rngs)

        def __call__(self, images):
            return self.last(jnp.tanh(self.hidden(images.reshape(len(images), -1))))

    def load(weights):
        model = Classifier(nnx.Rngs(0))
        for layer, (kernel, bias) in zip([model.hidden, model.last], weights, strict=True):
            layer.kernel, layer.bias = nnx.Param(kernel), nnx.Param(bias)
        return model

    return load


def nnx_module():
    """An NNX module is a pytree, and is passed as it is."""
    return nnx_classifier(), lambda model: model


def nnx_split():
    """The functional way: the graph has no leaves, and equal ones share a compilation."""

    def logits(graph, state, images):
        return nnx.merge(graph, state)(images)

    return nnx_classifier(), lambda model: Partial(logits, *nnx.split(model))


def equinox():
    """A module of arrays alone is a pytree; `vmap`, as Equinox's layers take one example."""
    eqx = pytest.importorskip("equinox")

    class Classifier(eqx.Module):
        hidden: eqx.nn.Linear
        last: eqx.nn.Linear

        def __call__(self, image):
            return self.last(jnp.tanh(self.hidden(jnp.ravel(image))))

    def load(weights):
        return Classifier(*equinox_layers(eqx, weights))

    def logits(model, images):
        return jax.vmap(model)(images)

    return load, lambda model: Partial(logits, model)


def equinox_sequential():
    """A module with functions among its leaves, which are not traced."""
    eqx = pytest.importorskip("equinox")

    def load(weights):
        hidden, last = equinox_layers(eqx, weights)
        between = [eqx.nn.Lambda(jnp.ravel), eqx.nn.Lambda(jnp.tanh)]
        return eqx.nn.Sequential([between[0], hidden, between[1], last])

    def logits(model, images):
        return jax.vmap(model)(images)

    return load, lambda model: Partial(logits, model)


def equinox_layers(eqx, weights):
    """Equinox's linear layers with these weights."""
    for kernel, bias in weights:
        layer = eqx.nn.Linear(*kernel.shape, key=KEY)
        yield eqx.tree_at(lambda made: (made.weight, made.bias), layer, (kernel.T, bias))


def haiku():
    """`apply` of a transformed function, without a random key, over parameters."""
    hk = pytest.importorskip("haiku")

    def forward(images):
        x = jnp.tanh(hk.Linear(HIDDEN, name="hidden")(images.reshape(len(images), -1)))
        return hk.Linear(CLASSES, name="last")(x)

    network = hk.without_apply_rng(hk.transform(forward))

    def load(weights):
        layers = [dict(w=kernel, b=bias) for kernel, bias in weights]
        return dict(zip(["hidden", "last"], layers, strict=True))

    return load, lambda params: Partial(network.apply, params)


FRAMEWORKS = {
    made.__name__: made
    for made in (plain, linen, nnx_module, nnx_split, equinox, equinox_sequential, haiku)
}


@pytest.fixture(params=all_slow_but(["linen", "nnx_module", "haiku"], FRAMEWORKS))
def framework(request, float64):
    """Name, and checkpoint's weights -> `logits_fn`. Float64: rounding then flips no sign."""
    load, passed = FRAMEWORKS[request.param]()
    return SimpleNamespace(name=request.param, logits_fn=lambda weights: passed(load(weights)))


def batch():
    """Images, float64, and what the plain classifier says of them: all are right at first."""
    images = jnp.asarray(np.random.RandomState(2).uniform(size=(24, SIZE, SIZE, 1)))
    load, _ = plain()
    return images, load(checkpoint(0))(images).argmax(-1)


@functools.cache
def attack_on_the_plain_function(name):
    """The adversarial images of an attack on the plain function of checkpoint 0."""
    load, _ = plain()
    return ATTACKS[name](load(checkpoint(0)), *batch(), KEY, epsilon=EPSILON)


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_same_weights_give_the_same_images_and_one_compilation_serves_all(framework, name):
    images, labels = batch()
    logits_fn = framework.logits_fn(checkpoint(0))
    attacked = ATTACKS[name](logits_fn, images, labels, KEY, epsilon=EPSILON)
    assert float(jnp.abs(attacked - images).max()) <= EPSILON + 1e-12
    assert 0 <= float(attacked.min()) and float(attacked.max()) <= 1
    robust = int((logits_fn(attacked).argmax(-1) == labels).sum())
    assert 0 < robust < len(labels), "the attack must break some and not all"
    np.testing.assert_allclose(attacked, attack_on_the_plain_function(name), atol=1e-9)
    others = [framework.logits_fn(checkpoint(seed)) for seed in (1, 2)]
    with compiled_names() as names:
        for logits_fn in others:
            ATTACKS[name](logits_fn, images, labels, KEY, epsilon=EPSILON)
    assert not names, names
