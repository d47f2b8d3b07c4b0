"""Half-precision images: attacked in float32, and given back inside the ball in their own dtype."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from cat_jax import attacks
from cat_jax.attacks.precision import inwards
from cat_jax.evaluation import checks

EPSILON = 0.05
KEY = jax.random.key(0)
STEPS = dict(epsilon=EPSILON, step_size=0.02, num_steps=5)
ATTACKS = {
    "pgd": functools.partial(attacks.pgd, **STEPS),
    "friendly_pgd": functools.partial(attacks.friendly_pgd, **STEPS),
    "fgsm": functools.partial(attacks.fgsm, epsilon=EPSILON),
    "apgd": functools.partial(attacks.apgd, epsilon=EPSILON, num_steps=5),
    "fab_t": functools.partial(attacks.fab_t, epsilon=EPSILON, num_steps=5),
    "square": functools.partial(attacks.square, epsilon=EPSILON, num_queries=20),
    "standard": functools.partial(attacks.standard, epsilon=EPSILON, num_steps=5, num_queries=20),
}
WEIGHTS = np.random.default_rng(0).normal(size=(48, 5)).astype(np.float32)


def linear(weights, images):
    return (images - 0.5).reshape(len(images), -1) @ weights


def batch(dtype):
    images = jnp.asarray(np.random.default_rng(1).uniform(size=(32, 4, 4, 3)), dtype)
    return images, linear(WEIGHTS, images.astype(jnp.float32)).argmax(-1)


HALVES = pytest.mark.parametrize("half", ["float16", "bfloat16"])
CASES = [
    *((name, "float16") for name in ATTACKS),
    *((name, "bfloat16") for name in ("pgd", "apgd", "fab_t", "square", "standard")),
]


@pytest.mark.slow
@pytest.mark.parametrize("name, half", CASES)
def test_the_result_is_in_the_ball_and_as_strong_as_in_float32(name, half):
    images, labels = batch(half)
    logits_fn = Partial(linear, WEIGHTS)
    adversarial = ATTACKS[name](logits_fn, images, labels, KEY)
    assert adversarial.dtype == half and np.isfinite(np.asarray(adversarial, np.float64)).all()
    moved = np.asarray(adversarial, np.float64) - np.asarray(images, np.float64)
    assert np.abs(moved).max() <= np.float32(EPSILON), "not by one rounding"
    assert adversarial.min() >= 0 and adversarial.max() <= 1
    wide = images.astype(jnp.float32)
    exact = ATTACKS[name](logits_fn, wide, labels, KEY)
    fooled, want = (
        int((linear(WEIGHTS, x.astype(jnp.float32)).argmax(-1) != labels).sum())
        for x in (adversarial, exact)
    )
    assert want > 3 and abs(fooled - want) <= 3


@pytest.mark.slow
@HALVES
def test_the_euclidean_ball_too(half):
    images, labels = batch(half)
    logits_fn = Partial(linear, WEIGHTS)
    adversarial = attacks.pgd(logits_fn, images, labels, KEY, norm="l2", **STEPS | {"epsilon": 0.1})
    moved = np.asarray(adversarial, np.float64) - np.asarray(images, np.float64)
    norms = np.sqrt(np.square(moved).sum((1, 2, 3)))
    assert (norms <= 0.1 + 1e-6).all() and norms.min() > 0.05
    near = attacks.cw_l2(logits_fn, images, labels, num_steps=30, learning_rate=0.1)
    assert near.dtype == half and np.isfinite(np.asarray(near, np.float64)).all()


@HALVES
def test_a_network_gets_images_of_the_dtype_that_was_given(half):
    """So that one whose weights are of half precision takes them; its logits are widened."""
    images, labels = batch(half)
    seen = []

    def narrow(weights, x):
        seen.append(x.dtype)
        return (x - jnp.asarray(0.5, half)).reshape(len(x), -1) @ weights

    weights = jnp.asarray(WEIGHTS, half)
    adversarial = ATTACKS["pgd"](Partial(narrow, weights), images, labels, KEY)
    assert set(seen) == {jnp.dtype(half)} and adversarial.dtype == half
    assert (np.asarray(adversarial) != np.asarray(images)).mean() > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_the_checks_take_a_network_of_half_precision(half):
    images, labels = batch(half)

    def narrow(weights, x):
        return (x - jnp.asarray(0.5, half)).reshape(len(x), -1) @ weights

    logits_fn = Partial(narrow, jnp.asarray(WEIGHTS, half))
    assert checks.examine(logits_fn, images, labels, KEY, epsilon=EPSILON)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_rounding_goes_towards_the_image_and_no_further_than_needed(half):
    images = jnp.asarray(np.random.default_rng(2).uniform(size=(1, 50, 50, 1)), half)
    wide = images.astype(jnp.float32)
    candidate = jnp.clip(wide + jax.random.uniform(KEY, wide.shape, minval=-0.1, maxval=0.1), 0, 1)
    rounded = inwards(candidate, images)
    step = np.abs(np.asarray(rounded, np.float64) - np.asarray(candidate, np.float64))
    before, after = (np.abs(np.asarray(x, np.float64) - wide) for x in (candidate, rounded))
    assert (after <= before).all()
    assert (step <= np.float64(jnp.finfo(half).eps)).all()
    np.testing.assert_array_equal(inwards(wide, images), images)


@pytest.mark.slow
def test_float64_stays_float64(float64):
    images, labels = batch("float64")
    logits_fn = Partial(linear, WEIGHTS.astype(np.float64))
    for name in ("pgd", "apgd", "fab_t", "square"):
        adversarial = ATTACKS[name](logits_fn, images, labels, KEY)
        assert adversarial.dtype == np.float64
        assert np.abs(adversarial - images).max() <= EPSILON + 1e-12
