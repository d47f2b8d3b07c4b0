"""MI-FGSM against NumPy, input diversity by its properties, and the mean of several classifiers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compiled_names
from jax.tree_util import Partial

from cat_jax import attacks
from cat_jax.attacks.momentum import resize_and_pad
from cat_jax.errors import UsageError

RNG = np.random.default_rng(0)
IMAGES = RNG.uniform(size=(5, 4, 4, 2))
LABELS = np.array([0, 1, 2, 0, 1])
HIDDEN, OUT = RNG.normal(size=(32, 6)), RNG.normal(size=(6, 3))
KEY = jax.random.key(0)
BALL = dict(epsilon=0.1, num_steps=5)


def logits_of(weights, images):
    return jnp.tanh(images.reshape(len(images), -1) @ weights[0]) @ weights[1]


NETWORK = Partial(logits_of, (HIDDEN, OUT))
FLOAT32 = jax.tree.map(np.float32, NETWORK)


def in_numpy(images, labels, *, epsilon, num_steps, momentum, norm):
    """MI-FGSM in float64, with the gradient of the cross-entropy written out."""
    adversarial, velocity = images.copy(), np.zeros_like(images)
    axes = (1, 2, 3)
    for _ in range(num_steps):
        hidden = np.tanh(adversarial.reshape(len(images), -1) @ HIDDEN)
        logits = hidden @ OUT
        exponentials = np.exp(logits - logits.max(-1, keepdims=True))
        error = exponentials / exponentials.sum(-1, keepdims=True) - np.eye(3)[labels]
        gradient = (((error @ OUT.T) * (1 - hidden**2)) @ HIDDEN.T).reshape(images.shape)
        velocity = momentum * velocity + gradient / np.abs(gradient).sum(axes, keepdims=True)
        if norm == "linf":
            step = np.sign(velocity)
        else:
            step = velocity / np.sqrt((velocity**2).sum(axes, keepdims=True))
        delta = adversarial + epsilon / num_steps * step - images
        if norm == "linf":
            delta = np.clip(delta, -epsilon, epsilon)
        else:
            length = np.sqrt((delta**2).sum(axes, keepdims=True))
            delta *= np.minimum(1, epsilon / length)
        adversarial = np.clip(images + delta, 0, 1)
    return adversarial


@pytest.mark.parametrize("norm, epsilon", [("linf", 0.1), ("l2", 0.5)])
def test_it_is_the_published_iteration(float64, norm, epsilon):
    hyper = dict(epsilon=epsilon, num_steps=7, momentum=0.8, norm=norm)
    adversarial = attacks.mi_fgsm(NETWORK, IMAGES, LABELS, KEY, **hyper)
    np.testing.assert_allclose(adversarial, in_numpy(IMAGES, LABELS, **hyper), atol=1e-9)
    assert np.abs(adversarial - IMAGES).max() > 0.05


def test_without_momentum_it_is_pgd_from_the_image():
    images = IMAGES.astype(np.float32)
    hyper = dict(epsilon=0.1, step_size=0.03, num_steps=4)
    adversarial = attacks.mi_fgsm(FLOAT32, images, LABELS, KEY, momentum=0.0, **hyper)
    expected = attacks.pgd(FLOAT32, images, LABELS, KEY, random_start=False, **hyper)
    np.testing.assert_allclose(adversarial, expected, atol=1e-6)


@pytest.mark.slow
def test_copies_are_smaller_images_on_zeros():
    """Of a white image: a rectangle of ones in whole pixels, somewhere inside."""
    white, keys = jnp.ones((64, 10, 10, 1)), jax.random.split(KEY, 64)
    copies = np.asarray(resize_and_pad(white, keys, probability=1.0, smallest=0.7))[..., 0]
    np.testing.assert_allclose(copies, np.rint(copies), atol=1e-6)
    rows, columns = (copies.max(axis).sum(-1) for axis in (2, 1))
    np.testing.assert_array_equal(rows, columns)
    np.testing.assert_allclose(copies.sum((1, 2)), rows * columns, rtol=1e-5)
    assert {*np.rint(rows)} == {7, 8, 9, 10}
    assert len({image.argmax() for image in copies}) > 8, "places differ"
    same = functools.partial(resize_and_pad, jnp.asarray(IMAGES, jnp.float32), keys[:5])
    np.testing.assert_array_equal(same(probability=0.0, smallest=0.5), IMAGES.astype(np.float32))
    np.testing.assert_allclose(same(probability=1.0, smallest=1.0), IMAGES, atol=1e-6)
    half = resize_and_pad(white, keys, probability=0.5, smallest=0.1)
    assert 15 < sum(np.all(np.asarray(half) == 1, axis=(1, 2, 3))) < 50


@pytest.mark.slow
def test_diversity_draws_for_each_image_and_stays_in_the_ball():
    images, keys = IMAGES.astype(np.float32), jax.random.split(KEY, 5)
    attack = functools.partial(attacks.mi_fgsm, FLOAT32, diversity=0.9, resize=0.5, **BALL)
    adversarial = attack(images, LABELS, keys)
    order = np.array([3, 0, 4, 1, 2])
    np.testing.assert_allclose(
        attack(images[order], LABELS[order], keys[order]), adversarial[order], atol=1e-6
    )
    assert np.abs(adversarial - images).max() <= 0.1 + 1e-6
    assert adversarial.min() >= 0 and adversarial.max() <= 1
    in_l1 = attack(images, LABELS, keys, norm="l1")
    assert 0.05 < np.abs(in_l1 - images).sum((1, 2, 3)).max() <= 0.1 + 1e-6
    plain = attacks.mi_fgsm(FLOAT32, images, LABELS, keys, **BALL)
    assert np.any(np.abs(plain - adversarial) > 0.01)


def test_several_classifiers_are_attacked_as_one_that_is_compiled_once():
    images = IMAGES.astype(np.float32)
    others = jax.tree.map(lambda leaf: -0.5 * leaf, FLOAT32)
    both = attacks.mean_logits(FLOAT32, others)
    np.testing.assert_allclose(both(images), (FLOAT32(images) + others(images)) / 2, rtol=1e-5)
    hyper = BALL | {"num_steps": 3}
    attacks.mi_fgsm(both, images, LABELS, KEY, **hyper)
    with compiled_names() as names:
        attacks.mi_fgsm(attacks.mean_logits(others, FLOAT32), images, LABELS, KEY, **hyper)
    assert "_climb" not in " ".join(names)
    functions = attacks.mean_logits(lambda x: FLOAT32(x), FLOAT32)
    np.testing.assert_allclose(functions(images), FLOAT32(images), rtol=1e-5)


@pytest.mark.parametrize(
    "hyper, message",
    [
        (dict(num_steps=0), "num_steps=0; expected at least 1"),
        (dict(norm="l0"), "norm is 'l0'; available: linf, l2, l1"),
        (dict(diversity=1.5), r"diversity=1.5; expected \[0, 1\]"),
        (dict(resize=0.0), "resize=0; expected above 0"),
        (dict(momentum=-1.0), "momentum=-1.0; expected a number from 0"),
    ],
)
def test_arguments_out_of_range_are_refused(hyper, message):
    with pytest.raises(UsageError, match=message):
        attacks.mi_fgsm(FLOAT32, IMAGES.astype(np.float32), LABELS, KEY, **BALL | hyper)
    with pytest.raises(UsageError, match="no classifiers; expected at least one"):
        attacks.mean_logits()
