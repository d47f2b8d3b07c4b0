"""GradAlign: its value and its gradient."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cat_jax.attacks.starts import uniform_noise
from cat_jax.step.gradient_alignment import misalignment

EPSILON = 0.3
KEYS = jax.random.split(jax.random.key(0), 4)
LABELS = np.array([0, 2, 1, 2])


def apply(weights, images):
    hidden = jnp.tanh(images.reshape(len(images), -1) @ weights[0])
    return hidden @ weights[1], weights


penalty = functools.partial(misalignment, apply, labels=LABELS, keys=KEYS, epsilon=EPSILON)


def by_hand(weights, images, noise):
    """Mean of 1 - cosine as a function of the weights, with the gradient at x as a constant."""

    def input_gradients(weights, points):
        hidden = np.tanh(points.reshape(len(points), -1) @ weights[0])
        logits = hidden @ weights[1]
        p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        return ((p - np.eye(3)[LABELS]) @ weights[1].T * (1 - hidden**2)) @ weights[0].T

    at_image = input_gradients(weights, images)

    def value(weights):
        at_noise = input_gradients(weights, images + noise)
        lengths = np.linalg.norm(at_image, axis=-1) * np.linalg.norm(at_noise, axis=-1)
        return np.mean(1 - np.sum(at_image * at_noise, axis=-1) / lengths)

    return value


def test_value_in_closed_form_and_gradient_by_differences(float64):
    r = np.random.default_rng(0)
    images = r.uniform(size=(4, 3, 3, 1))
    weights = [r.normal(size=(9, 5)), r.normal(size=(5, 3))]
    cost = jax.jit(jax.value_and_grad(lambda w: jnp.mean(penalty(w, images))))
    value, gradient = cost([jnp.asarray(w) for w in weights])
    noise = EPSILON * np.asarray(uniform_noise(KEYS, jnp.asarray(images)))
    expected = by_hand(weights, images, noise)
    np.testing.assert_allclose(value, expected(weights), rtol=1e-9)
    for layer, index in ((0, (4, 2)), (0, (0, 0)), (1, (3, 1))):
        step = np.zeros_like(weights[layer])
        step[index] = 1e-6
        ends = [
            [w + sign * step if i == layer else w for i, w in enumerate(weights)]
            for sign in (1, -1)
        ]
        slope = (expected(ends[0]) - expected(ends[1])) / 2e-6
        np.testing.assert_allclose(gradient[layer][index], slope, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_a_gradient_that_does_not_turn_costs_nothing_and_a_zero_one_neither():
    """Two classes and one linear layer: every gradient has the direction of one vector."""

    def linear(weights, images):
        return images.reshape(len(images), -1) @ weights, weights

    images, labels = jnp.full((4, 3, 3, 1), 0.5), np.array([0, 1, 0, 1])
    cost = functools.partial(misalignment, linear, labels=labels, keys=KEYS, epsilon=EPSILON)
    total = jax.jit(jax.value_and_grad(lambda w: jnp.sum(cost(w, images))))
    for weights in (jnp.arange(18.0).reshape(9, 2), jnp.zeros((9, 2))):
        value, gradient = total(weights)
        np.testing.assert_allclose(value, 0, atol=4e-6)
        assert np.isfinite(gradient).all()
