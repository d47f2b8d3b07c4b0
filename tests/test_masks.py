"""Means of the mask on the digit and around it, of masks that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from cat_jax.data import Split
from cat_jax.evaluation.masks import mask_means, mask_views
from cat_jax.step.state import TrainState, init_network


class Classifier(nn.Module):
    @nn.compact
    def __call__(self, images, *, train=False):
        return images.reshape(len(images), -1)[:, :2]


class Known(nn.Module):
    """0.2 where x is bright, 0.9 where it is dark, and 10 times delta's size on top."""

    @nn.compact
    def __call__(self, images, delta, *, train=False):
        return jnp.where(images >= 0.5, 0.2, 0.9) + 10 * jnp.abs(delta)


def test_means_are_over_the_pixels_of_all_images_and_see_the_attacks_delta():
    r = np.random.default_rng(0)
    images = r.integers(0, 256, (10, 4, 4, 1)).astype(np.uint8)
    images[0] = 255  # An image without background counts for none.
    tx, x = optax.sgd(0.1), jnp.zeros((1, 4, 4, 1))
    f, g = Classifier(), Known()
    state = TrainState(
        jnp.int32(0),
        init_network(f, tx, jax.random.key(0), x),
        init_network(g, tx, jax.random.key(0), x, x),
    )

    def attack(apply, state, images, labels, keys):
        return images + 0.01 * labels.reshape(-1, 1, 1, 1), state  # Only images of class 1 move.

    labels = np.arange(10) % 2
    means = mask_means(f, g, attack, state, Split(images, labels), seed=0, batch_size=4)
    ink = images >= 127.5
    moved = 0.1 * (labels.reshape(-1, 1, 1, 1) * np.ones_like(images))
    np.testing.assert_allclose(means.digit, 0.2 + moved[ink].mean(), rtol=1e-5)
    np.testing.assert_allclose(means.background, 0.9 + moved[~ink].mean(), rtol=1e-5)
    dark = Split(images // 3, labels)
    assert mask_means(f, g, attack, state, dark, seed=0, batch_size=4) is None


def test_views_are_what_the_attack_and_the_mask_make_of_each_image():
    images = np.zeros((3, 4, 4, 1), np.uint8)
    images[1:] = 255
    tx, x = optax.sgd(0.1), jnp.zeros((1, 4, 4, 1))
    nets = Classifier(), Known()
    states = [init_network(net, tx, jax.random.key(0), *[x] * n) for n, net in enumerate(nets, 1)]

    def attack(apply, state, images, labels, keys):
        return images + 0.01, state

    split = Split(images, np.zeros(3, np.int32))
    views = mask_views(*nets, attack, TrainState(jnp.int32(0), *states), split, seed=0)
    assert {view.shape for view in views[:4]} == {(3, 4, 4, 1)}
    assert views.labels.shape == (3,) and views.predicted.shape == (3, 3)
    mask = np.where(images >= 128, 0.3, 1.0)
    np.testing.assert_allclose(views.mask, mask, rtol=1e-5)
    np.testing.assert_allclose(views.adversarial, images / 255 + 0.01, rtol=1e-5)
    np.testing.assert_allclose(views.calibrated, images / 255 + 0.01 * mask, rtol=1e-5)
