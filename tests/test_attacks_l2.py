"""Euclidean attacks: PGD in an L2 ball, and Carlini & Wagner's search for the nearest point."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from cat_jax import attacks
from cat_jax.attacks.balls import BALLS, l2_norm
from cat_jax.errors import UsageError

KEY = jax.random.key(0)


def linear(weights, images):
    return (images - 0.5).reshape(len(images), -1) @ weights


@pytest.fixture
def setting():
    """(logits_fn, images, labels, w): two classes; w is the gradient of their gap."""
    weights = jax.random.normal(jax.random.key(3), (48, 2))
    images = np.random.default_rng(0).uniform(0.4, 0.6, (16, 4, 4, 3)).astype(np.float32)
    logits_fn = Partial(linear, weights)
    labels = np.array(logits_fn(images).argmax(-1), np.int32)
    return logits_fn, images, labels, np.asarray(weights[:, 1] - weights[:, 0])


def norms(delta):
    return np.asarray(l2_norm(jnp.asarray(delta))).ravel()


@pytest.mark.parametrize("random_start", [False, True])
def test_l2_pgd_ends_at_the_point_of_the_sphere_that_a_linear_model_points_to(
    setting, random_start
):
    logits_fn, images, labels, w = setting
    hyper = dict(epsilon=0.3, step_size=0.1, num_steps=60, norm="l2", random_start=random_start)
    found = attacks.pgd(logits_fn, images, labels, KEY, **hyper)
    uphill = np.where(labels == 0, 1, -1).reshape(-1, 1, 1, 1) * w.reshape(1, 4, 4, 3)
    want = images + 0.3 * uphill / np.linalg.norm(w)
    np.testing.assert_allclose(found, want, atol=2e-3 if random_start else 1e-5)


def test_l2_pgd_stays_in_the_ball_and_in_the_pixel_range(setting):
    logits_fn, images, labels, _ = setting
    images = np.clip(5 * (images - 0.5) + 0.5, 0, 1)
    hyper = dict(epsilon=1.5, step_size=0.5, num_steps=5, norm="l2")
    found = np.asarray(attacks.pgd(logits_fn, images, labels, KEY, **hyper))
    assert 0.5 < norms(found - images).max() <= 1.5 + 1e-5
    assert found.min() >= 0 and found.max() <= 1


@pytest.mark.slow
def test_uniform_noise_fills_the_l2_ball_and_belongs_to_its_example():
    images = jnp.zeros((4000, 2, 2, 1))
    keys = jax.random.split(KEY, 4000)
    noise = BALLS["l2"].noise(keys, images)
    radii = norms(noise)
    assert radii.max() <= 1 + 1e-6
    # In four dimensions a share r^4 of the ball lies within r.
    np.testing.assert_allclose(np.mean(radii < 0.5**0.25), 0.5, atol=0.03)
    np.testing.assert_allclose(np.mean(noise, 0), 0, atol=0.03)
    part = BALLS["l2"].noise(keys[7:9], images[7:9])
    np.testing.assert_allclose(part, noise[7:9], atol=1e-6)
    with jax.debug_key_reuse(True):
        BALLS["l2"].noise(KEY, images[:2])


@pytest.mark.parametrize("size", [1e-30, 1e30, 0.0])
def test_the_steepest_step_has_norm_one_whatever_the_gradients_size(size):
    gradient = size * jnp.array([3.0, -4.0]).reshape(1, 1, 2, 1)
    want = np.array([0.6, -0.8]) if size else np.zeros(2)
    np.testing.assert_allclose(
        BALLS["l2"].step(gradient, gradient, 1.0, None).ravel(), want, rtol=1e-6
    )


def test_cw_finds_the_distance_to_a_linear_models_boundary(setting):
    logits_fn, images, labels, w = setting
    gap = np.abs(np.diff(np.asarray(logits_fn(images)), axis=-1).ravel())
    labels = labels.copy()
    labels[:2] = 1 - labels[:2]
    hyper = dict(num_steps=300, num_searches=8, learning_rate=0.01, initial_c=0.01)
    found = attacks.cw_l2(logits_fn, images, labels, **hyper)
    assert (np.asarray(logits_fn(found).argmax(-1)) != labels).all()
    np.testing.assert_array_equal(found[:2], images[:2])
    distance = gap / np.linalg.norm(w)
    excess = norms(found - images)[2:] / distance[2:]
    assert 1 - 1e-3 <= excess.min() and np.median(excess) < 1.02 and excess.max() < 1.1


def test_cw_reaches_the_margin_that_it_is_asked_for(setting):
    logits_fn, images, labels, _ = setting
    hyper = dict(num_steps=200, num_searches=5, initial_c=0.1, kappa=2.0)
    logits = np.asarray(logits_fn(attacks.cw_l2(logits_fn, images, labels, **hyper)))
    margin = np.diff(logits, axis=-1).ravel() * np.where(labels == 0, 1, -1)
    assert (margin >= 2.0 - 1e-4).all()


def test_cw_returns_images_that_it_cannot_break_as_they_are(setting):
    _, images, _, _ = setting
    images[0, 0, 0] = 0.0, 1.0, 0.5  # Black and white have no finite arctanh.
    deaf = Partial(linear, jnp.zeros((48, 2)).at[0, 0].set(0.0))
    stubborn = Partial(lambda w, x: linear(w, x) + jnp.array([[9.0, 0.0]]), deaf.args[0])
    labels = np.zeros(16, np.int32)
    found = attacks.cw_l2(stubborn, images, labels, num_steps=3, num_searches=2)
    np.testing.assert_array_equal(found, images)


def test_what_an_l2_attack_cannot_mean_is_refused(setting):
    logits_fn, images, labels, _ = setting
    with pytest.raises(UsageError, match="norm is 'l3'; available: linf, l2, l1"):
        attacks.pgd(logits_fn, images, labels, KEY, epsilon=1, step_size=1, num_steps=1, norm="l3")
    with pytest.raises(UsageError, match="epsilon=-1; expected a finite number from 0"):
        attacks.pgd(logits_fn, images, labels, KEY, epsilon=-1, step_size=1, num_steps=1, norm="l2")
