"""The mean over draws: the same in every batch; a noisy classifier falls under suite `rand`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import robust_digits
from compilations import compiled_names
from jax.tree_util import Partial

from cat_jax import attacks, losses
from cat_jax.attacks import expectation
from cat_jax.errors import UsageError
from cat_jax.evaluation import evaluate
from cat_jax.evaluation.checks import findings

KEY = jax.random.key(0)
IMAGES = np.random.default_rng(0).uniform(0.2, 0.8, (5, 2, 2, 1)).astype(np.float32)
LABELS = np.arange(5) % 3
FIRST, SECOND = np.random.default_rng(1).normal(size=(2, 4, 3)).astype(np.float32)
PGD = functools.partial(attacks.pgd, epsilon=0.1, step_size=0.05, num_steps=3)


def noisy(weights, images, key):
    """A linear classifier with noise in front; one key for the batch, as users write it."""
    return (images + jax.random.normal(key, images.shape)).reshape(len(images), -1) @ weights


def test_its_logits_are_the_mean_over_independent_draws():
    """Noise of deviation s in a logit leaves s / sqrt(n) in the mean of n draws."""
    exact = IMAGES.reshape(5, -1) @ FIRST
    scale = np.linalg.norm(FIRST, axis=0)
    for number, below in [(1, 4.0), (400, 0.2)]:
        errors = (np.asarray(expectation(Partial(noisy, FIRST), number)(IMAGES)) - exact) / scale
        assert 0.1 * below < np.abs(errors).max() < below
    other = expectation(Partial(noisy, FIRST), 1, key=jax.random.key(1))(IMAGES)
    assert np.all(other != expectation(Partial(noisy, FIRST), 1)(IMAGES))


def test_its_gradient_is_the_mean_over_the_same_draws():
    """Also inside `jit`; for f(x + noise)^2 / 2 it is the mean of f(x + noise) f'."""

    def squared(images, key):
        return jnp.square(noisy(FIRST, images, key)) / 2

    def total(function, images):
        return jnp.sum(expectation(function, 7)(images)[:, 0])

    gradient = jax.jit(jax.grad(functools.partial(total, squared)))(IMAGES)
    linear = expectation(Partial(noisy, FIRST), 7)(IMAGES)
    want = np.asarray(linear)[:, :1] * FIRST[:, 0]
    np.testing.assert_allclose(gradient.reshape(5, -1), want, rtol=1e-4)


@pytest.mark.slow
def test_an_image_has_the_same_logits_in_every_batch_and_other_images_have_other_noise():
    logits_fn = expectation(Partial(noisy, FIRST), 3)
    logits = np.asarray(logits_fn(IMAGES))
    for order in ([4, 3, 2, 1, 0], [2], [1, 1]):
        np.testing.assert_allclose(logits_fn(IMAGES[order]), logits[order], rtol=1e-5)
    assert findings.repeatable_logits(logits, np.asarray(logits_fn(IMAGES))).passed
    noise = logits - IMAGES.reshape(5, -1) @ FIRST
    assert len(np.unique(noise[:, 0])) == 5
    mapped = jax.vmap(lambda image: logits_fn(image[None])[0])(IMAGES)
    np.testing.assert_allclose(mapped, logits, rtol=1e-5)
    negative_zero = np.where(np.arange(4).reshape(2, 2, 1) == 0, -0.0, IMAGES[:1])
    np.testing.assert_array_equal(logits_fn(negative_zero), logits_fn(np.abs(negative_zero)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_images_of_half_precision(dtype):
    images = jnp.asarray(IMAGES, dtype)
    logits = expectation(Partial(noisy, FIRST), 2)(images)
    assert logits.shape == (5, 3) and len(np.unique(logits)) == 15


@pytest.mark.slow
def test_attacks_compile_once_for_all_weights_and_do_not_depend_on_the_batch():
    keys = jax.random.split(KEY, 5)
    both = PGD(expectation(Partial(noisy, FIRST), 3), IMAGES, LABELS, keys)
    with compiled_names() as names:
        PGD(expectation(Partial(noisy, SECOND), 3), IMAGES, LABELS, keys)
    assert not names, names
    logits_fn = expectation(Partial(noisy, FIRST), 3)
    alone = PGD(logits_fn, IMAGES[3:], LABELS[3:], keys[3:])
    np.testing.assert_allclose(alone, both[3:], atol=1e-6)


def steep(weights, images, key):
    """The robust network behind noise; its logits are so large that softmax saturates."""
    noise = 0.2 * jax.random.normal(key, images.shape)
    return 30 * robust_digits.network(weights, images + noise)


@pytest.mark.slow
def test_a_random_defence_that_pgd_leaves_falls_under_rand():
    """Judged on fresh draws, many more than the attacks see."""
    images, labels = map(jnp.asarray, robust_digits.batch())
    classifier = Partial(steep, robust_digits.trained())
    judge = expectation(classifier, 100, key=jax.random.key(1))
    pgd = functools.partial(attacks.pgd, step_size=0.05, num_steps=10)
    rand = functools.partial(attacks.rand, num_steps=20)
    accuracy = {}
    for attack, draws in ((pgd, 1), (rand, 20)):
        adversarial = attack(expectation(classifier, draws), images, labels, KEY, epsilon=0.2)
        accuracy[attack] = losses.is_right(judge(adversarial), labels).mean()
    assert losses.is_right(judge(images), labels).mean() > 0.9
    assert accuracy[pgd] > 0.5 and accuracy[rand] < 0.3, accuracy


@pytest.mark.slow
def test_the_suite_rand_is_apgd_on_two_losses():
    logits_fn = expectation(Partial(noisy, 5 * FIRST), 2)
    results = evaluate(logits_fn, IMAGES, LABELS, KEY, suite="rand", epsilon=0.1, progress=False)
    assert list(results) == ["natural", "apgd_ce", "apgd_dlr"]
    conditions = results["apgd_dlr"].conditions
    assert conditions["loss"] == "logit_ratio" and conditions["num_steps"] == 100
    assert np.all(results["apgd_ce"].flags >= results["apgd_dlr"].flags)


def test_what_is_refused():
    with pytest.raises(UsageError, match="num_samples=0; expected at least 1"):
        expectation(noisy, 0)
    with pytest.raises(UsageError, match="key has the shape"):
        expectation(noisy, 1, key=jax.random.split(KEY, 2))
    with pytest.raises(UsageError, match=r"logits \[1, K\]"):
        expectation(lambda images, key: jnp.zeros(3), 2)(IMAGES)


def test_the_check_of_random_classifiers_names_the_remedy():
    logits = np.ones((2, 3), np.float32)
    assert "attacks.expectation" in findings.repeatable_logits(logits, 2 * logits).text
