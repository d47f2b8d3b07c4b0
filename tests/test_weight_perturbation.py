"""Adversarial weight perturbation, in closed form."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from cat_jax import methods, networks
from cat_jax.step.state import TrainState, init_network
from cat_jax.step.train_step import make_train_step, pmap_step
from cat_jax.step.weight_perturbation import perturbation


def test_each_kernel_moves_uphill_by_gamma_of_its_norm_and_nothing_else_moves():
    r = np.random.default_rng(0)
    params = {"kernel": r.normal(size=(3, 4)), "bias": r.normal(size=4), "idle": np.ones((2, 2))}
    grads = {"kernel": r.normal(size=(3, 4)), "bias": r.normal(size=4), "idle": np.zeros((2, 2))}
    moved = perturbation(jax.tree.map(jnp.asarray, params), jax.tree.map(jnp.asarray, grads), 0.1)
    size = 0.1 * np.linalg.norm(params["kernel"])
    np.testing.assert_allclose(np.linalg.norm(moved["kernel"]), size, rtol=1e-6)
    cosine = np.sum(moved["kernel"] * grads["kernel"]) / size / np.linalg.norm(grads["kernel"])
    np.testing.assert_allclose(cosine, 1.0, rtol=1e-6)
    assert not moved["bias"].any() and not moved["idle"].any()


class Linear(nn.Module):
    @nn.compact
    def __call__(self, images, *, train=False):
        return nn.Dense(2)(images.reshape(len(images), -1))


def by_hand(params, images, labels, gamma, rate, decay):
    """One step in NumPy: the gradient and the decay are those of the moved weights."""
    x, w, b = images.reshape(len(images), -1), params["kernel"], params["bias"]

    def gradient(w):
        logits = x @ w + b
        p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        error = (p - np.eye(2)[labels]) / len(x)
        return x.T @ error, error.sum(0)

    uphill, _ = gradient(w)
    moved = w + gamma * np.linalg.norm(w) / np.linalg.norm(uphill) * uphill
    dw, db = gradient(moved)
    return w - rate * (dw + decay * moved), b - rate * (db + decay * b)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_a_step_of_plain_training_with_perturbed_weights_by_hand(float64, gamma):
    f, g, tx = (
        Linear(),
        networks.OnesMask(),
        optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.3)),
    )
    r = np.random.default_rng(0)
    images, labels = r.uniform(size=(8, 2, 2, 1)), r.integers(0, 2, 8)
    x = jnp.zeros((1, 2, 2, 1))
    nets = init_network(f, tx, jax.random.key(0), x), init_network(g, tx, jax.random.key(0), x, x)
    state = jax.tree.map(
        lambda v: v.astype(float) if jnp.issubdtype(v.dtype, jnp.floating) else v,
        TrainState(jnp.int32(0), *nets),
    )
    before = jax.tree.map(np.asarray, state.classifier.params["Dense_0"])
    method = dataclasses.replace(methods.standard(), weight_perturbation=lambda step: gamma)
    step = pmap_step(make_train_step(method, f, g, tx, tx), jax.local_devices()[:1])
    batch = {"image": images[None], "label": labels[None]}
    after = step(state, batch, jax.random.key(0))[0].classifier.params["Dense_0"]
    kernel, bias = by_hand(before, images, labels, gamma, 0.3, 0.1)
    np.testing.assert_allclose(after["kernel"], kernel, rtol=1e-12)
    np.testing.assert_allclose(after["bias"], bias, rtol=1e-12)
