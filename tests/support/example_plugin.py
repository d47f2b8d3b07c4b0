"""A user's module: a network, a mask network, a method, an attack and a data set, all tiny."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from cat_jax import attacks, data, losses, methods, networks, register


class Flat(nn.Module):
    """Without batch norm and dropout it need not take train=."""

    num_classes: int = 10

    @nn.compact
    def __call__(self, images):
        x = nn.LayerNorm()(images.reshape(len(images), -1))
        gain = self.param("gain", nn.initializers.ones, ())
        return nn.Dense(self.num_classes)(nn.relu(nn.Dense(8)(gain * x)))


class Squares(nn.Module):
    """The same mask for all channels."""

    @nn.compact
    def __call__(self, images, delta):
        mask = nn.sigmoid(nn.Dense(1)(images + delta))
        return jnp.broadcast_to(mask, images.shape)


def half(attack, *, weight):
    """Natural and adversarial cross-entropy, half each."""

    def loss(z, y):
        natural = losses.cross_entropy(z.natural, y)
        return 0.5 * natural + weight * losses.cross_entropy(z.adversarial, y)

    return methods.Method(attack, ("natural", "adversarial"), loss)


def corners(logits_fn, images, labels, keys, *, epsilon):
    """A random corner of each image's ball."""
    draw = functools.partial(jax.random.rademacher, shape=images.shape[1:], dtype=images.dtype)
    return jnp.clip(images + epsilon * jax.vmap(draw)(keys), 0, 1)


def stripes(data_dir):
    """Class 1 has bright columns, class 0 bright rows."""
    del data_dir
    rng = np.random.default_rng(0)
    labels = np.arange(96, dtype=np.int32) % 2
    images = rng.integers(0, 100, (96, 8, 8, 1)).astype(np.uint8)
    images[labels == 0, ::2] += 100
    images[labels == 1, :, ::2] += 100
    train, test = (data.Split(images[part], labels[part]) for part in (slice(64), slice(64, 96)))
    return ("rows", "columns"), train, test


register(
    networks.Classifier("Flat", Flat),
    networks.MaskNet("Squares", Squares),
    methods.NamedMethod("half", half, fields=("weight",)),
    data.Source("stripes", stripes),
    attacks.EvaluationAttack("corners", corners),
)
