"""A network of two layers that adversarial training on digits made robust, in about a second."""

import functools

import jax
import jax.numpy as jnp
import optax
from jax import lax

from cat_jax import data, losses

EPSILON = 0.1


def network(weights, images):
    """Two layers, without biases."""
    first, second = weights
    return jnp.tanh(images.reshape(len(images), -1) @ first) @ second


def batch(number=64):
    """(images, labels) of the first test images."""
    few = data.load("digits").test.first(number)
    return data.to_unit(few.images), few.labels


@functools.cache
def trained():
    """Weights, trained against one step of 1.25 epsilon, from a random start."""
    key = jax.random.key(0)
    train = data.load("digits").train
    images, labels = jnp.asarray(data.to_unit(train.images)), jnp.asarray(train.labels)
    optimizer = optax.adam(3e-3)

    def loss(weights, x, y):
        return jnp.mean(losses.cross_entropy(network(weights, x), y))

    def step(carry, key):
        weights, state = carry
        indices = jax.random.randint(key, (256,), 0, len(labels))
        x, y = images[indices], labels[indices]
        start = jax.random.uniform(key, x.shape, x.dtype, -EPSILON, EPSILON)
        move = start + 1.25 * EPSILON * jnp.sign(jax.grad(loss, 1)(weights, x + start, y))
        x = jnp.clip(x + jnp.clip(move, -EPSILON, EPSILON), 0, 1)
        updates, state = optimizer.update(jax.grad(loss)(weights, x, y), state)
        return (optax.apply_updates(weights, updates), state), None

    start = [0.1 * jax.random.normal(key, shape) for shape in [(64, 64), (64, 10)]]
    run = jax.jit(lambda carry: lax.scan(step, carry, jax.random.split(key, 400))[0])
    return run((start, optimizer.init(start)))[0]
