"""NaN and infinity: entries without a direction stay where they are, and never count as right."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from slow_cases import all_slow_but

from cat_jax import attacks, losses, objectives

EPSILON = 0.2
KEY = jax.random.key(0)
PGD = functools.partial(attacks.pgd, epsilon=EPSILON, step_size=0.05, num_steps=5)
ATTACKS = {
    "pgd": PGD,
    "pgd_l2": functools.partial(PGD, norm="l2"),
    "friendly_pgd": functools.partial(attacks.friendly_pgd, **PGD.keywords),
    "fgsm": functools.partial(attacks.fgsm, epsilon=EPSILON),
    "cw_linf": functools.partial(attacks.cw_linf, **PGD.keywords),
    "apgd": functools.partial(attacks.apgd, epsilon=EPSILON, num_steps=5),
    "apgd_t": functools.partial(attacks.apgd_t, epsilon=EPSILON, num_steps=5, num_targets=2),
    "fab_t": functools.partial(attacks.fab_t, epsilon=EPSILON, num_steps=5, num_targets=2),
    "square": functools.partial(attacks.square, epsilon=EPSILON, num_queries=5),
    "cw_l2": functools.partial(attacks.cw_l2, num_steps=20, num_searches=3),
}
WEIGHTS = np.random.default_rng(0).normal(size=(16, 5)).astype(np.float32)


def linear(images):
    return (images - 0.5).reshape(len(images), -1) @ WEIGHTS


def blind_on_black(images):
    """`linear`, whose gradient is NaN (0 times infinity) at black pixels."""
    return linear(images) + jnp.sum(0.0 * jnp.sqrt(images), axis=(1, 2, 3))[:, None]


def undefined_when_bright(images):
    """`linear`, NaN for images with a mean above 0.7."""
    mean = jnp.mean(images, axis=(1, 2, 3))[:, None]
    return jnp.where(mean > 0.7, jnp.nan, linear(images))


@pytest.fixture
def images():
    drawn = np.random.default_rng(1).uniform(0.3, 0.6, (8, 4, 4, 1)).astype(np.float32)
    drawn[:, 0] = 0.0
    return drawn


@pytest.mark.parametrize("name", all_slow_but(["pgd", "apgd"], ATTACKS))
def test_entries_without_a_finite_gradient_do_not_move_and_the_others_do(images, name):
    labels = linear(images).argmax(-1)
    adversarial = np.asarray(ATTACKS[name](blind_on_black, images, labels, KEY))
    assert np.isfinite(adversarial).all() and adversarial.min() >= 0 and adversarial.max() <= 1
    assert np.abs(adversarial - images)[:, 1:].max() > 0.01
    if name == "fgsm":
        np.testing.assert_array_equal(adversarial[:, 0], images[:, 0])
        want = attacks.fgsm(linear, images, labels, KEY, epsilon=EPSILON)
        np.testing.assert_allclose(adversarial[:, 1:], want[:, 1:], atol=1e-6)


def test_infinite_gradients_do_not_move_an_entry_either(images):
    def steep_on_black(x):
        return linear(x) + jnp.sum(jnp.sqrt(x), axis=(1, 2, 3))[:, None] * jnp.arange(5.0)[None]

    labels = linear(images).argmax(-1)
    adversarial = attacks.fgsm(steep_on_black, images, labels, KEY, epsilon=EPSILON)
    np.testing.assert_array_equal(adversarial[:, 0], images[:, 0])
    assert np.abs(adversarial - images)[:, 1:].min() > 0.9 * EPSILON


def test_an_image_whose_loss_is_nan_stays_and_the_others_move(images):
    labels = linear(images).argmax(-1)
    images[:3] = 0.9
    adversarial = attacks.pgd(
        undefined_when_bright, images, labels, KEY, **PGD.keywords | {"random_start": False}
    )
    np.testing.assert_array_equal(adversarial[:3], images[:3])
    np.testing.assert_allclose(
        adversarial[3:], PGD(linear, images[3:], labels[3:], KEY, random_start=False), atol=1e-6
    )


@pytest.mark.parametrize("label", [0, 3])
def test_a_nan_is_right_for_no_class(label):
    logits = jnp.array([[0.0, 0, 0, 9], [jnp.nan, 0, 0, 9], [jnp.nan] * 4, [0, 0, 0, jnp.inf]])
    logits = jnp.concatenate([logits, jnp.array([[9.0, 0, 0, -jnp.inf], [9, 0, 0, 0]])])
    right = losses.is_right(logits, jnp.full(6, label))
    np.testing.assert_array_equal(right, [label == 3, False, False, False, False, label == 0])


@pytest.mark.parametrize(
    "name", all_slow_but(["square"], ["apgd", "apgd_t", "fab_t", "square", "cw_l2"])
)
def test_an_image_with_nan_logits_is_wrong_from_the_start(images, name):
    """Whatever its label: `argmax` would call it right for class 0, and fooled for the others."""
    images[:4] = 0.9
    labels = jnp.asarray(linear(images).argmax(-1)).at[:4].set(jnp.arange(4))
    adversarial = ATTACKS[name](undefined_when_bright, images, labels, KEY)
    np.testing.assert_array_equal(adversarial[:4], images[:4])
    result = attacks.square_with_queries(
        undefined_when_bright, images, labels, KEY, epsilon=EPSILON, num_queries=5
    )
    np.testing.assert_array_equal(result.fooled[:4], True)
    np.testing.assert_array_equal(result.queries[:4], 0)


def nudge(logits_fn, images, labels, keys, *, step):
    """Moves each image by up to `step`, by its own key."""
    del logits_fn, labels
    return jnp.clip(images + step * attacks.uniform_start(1.0)(keys, 0 * images), 0, 1)


def test_attacks_of_attacks_count_a_nan_as_not_right(images):
    """The first point is kept: later ones would replace it if NaN were right for class 0."""
    images[:4] = 0.9
    batch = (undefined_when_bright, images, jnp.zeros(8, int), KEY)
    small, large = (functools.partial(nudge, step=step) for step in (0.01, 0.02))
    once = attacks.restarts(small, 1)(*batch)
    assert np.abs(once - images).max() > 0.005
    np.testing.assert_array_equal(attacks.restarts(small, 3)(*batch)[:4], once[:4])
    np.testing.assert_array_equal(attacks.union([small, large])(*batch)[:4], once[:4])


def test_finite_values_are_not_touched(images):
    """The guards change no bit of an ordinary attack: against a loop without them."""
    labels = linear(images).argmax(-1)
    candidate = jnp.asarray(images)

    @jax.jit
    def step(x):
        def total(x):
            logits = objectives.Views(adversarial=linear(x))
            return objectives.adversarial_cross_entropy(logits, labels).sum()

        moved = x + 0.05 * jnp.sign(jax.grad(total)(x))
        return jnp.clip(jnp.clip(moved, images - EPSILON, images + EPSILON), 0.0, 1.0)

    for _ in range(5):
        candidate = step(candidate)
    np.testing.assert_array_equal(PGD(linear, images, labels, KEY, random_start=False), candidate)
