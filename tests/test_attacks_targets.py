"""Targeted attacks: where they end on linear models, what counts as success, which targets."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from cat_jax import attacks, objectives
from cat_jax.configs import digits
from cat_jax.errors import UsageError
from cat_jax.experiment import settings
from cat_jax.experiment.evaluation_attacks import evaluation_attacks

KEY = jax.random.key(0)
# Three classes with a block of four pixels each: a logit is the sum of its block.
BLOCKS = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
IMAGES = np.random.default_rng(0).uniform(0.3, 0.7, (9, 2, 3, 2)).astype(np.float32)
BALL = dict(epsilon=0.1, num_steps=20)


def linear(weights, images):
    return images.reshape(len(images), -1) @ weights


CLASSIFIER = Partial(linear, jnp.asarray(BLOCKS))
LABELS = np.asarray(CLASSIFIER(IMAGES).argmax(-1))
TARGETS = (LABELS + 1 + np.arange(9) % 2) % 3
ATTACKS = {
    "pgd": functools.partial(attacks.pgd, step_size=0.02, **BALL),
    "cw_linf": functools.partial(attacks.cw_linf, step_size=0.02, **BALL),
    "apgd": functools.partial(attacks.apgd, **BALL),
    "square": functools.partial(attacks.square, epsilon=0.1, num_queries=60),
}


def predicted(images):
    return np.asarray(CLASSIFIER(images).argmax(-1))


@pytest.mark.parametrize("name", ["pgd", pytest.param("cw_linf", marks=pytest.mark.slow)])
def test_a_targeted_attack_raises_the_targets_logit_and_lowers_the_others(name):
    """The loss of PGD has a gradient in every block; the margin in those of two classes."""
    delta = np.asarray(ATTACKS[name](CLASSIFIER, IMAGES, LABELS, KEY, targets=TARGETS)) - IMAGES
    moves = (delta.reshape(9, 12) @ BLOCKS) / 4
    at = np.arange(9)
    np.testing.assert_allclose(moves[at, TARGETS], 0.1, atol=1e-6)
    if name == "pgd":
        np.testing.assert_allclose(moves.sum(-1), -0.1, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_of_two_classes_the_target_is_the_other_one(norm):
    """So a targeted attack makes the steps of the untargeted one."""
    classifier = Partial(linear, jnp.asarray(BLOCKS[:, :2] - BLOCKS[:, 1:]))
    labels = np.asarray(classifier(IMAGES).argmax(-1))
    for attack in (
        functools.partial(attacks.pgd, step_size=0.02, **BALL, norm=norm),
        functools.partial(attacks.apgd, **BALL, norm=norm),
    ):
        away = attack(classifier, IMAGES, labels, KEY)
        towards = attack(classifier, IMAGES, labels, KEY, targets=1 - labels)
        np.testing.assert_allclose(towards, away, atol=1e-3)


@pytest.mark.parametrize("name", ["apgd", "square"])
def test_success_is_classified_as_the_target(name):
    """Other images are returned unchanged, and misclassification alone is no success."""
    labels = LABELS.copy()
    labels[0] = (LABELS[0] + 1) % 3  # Misclassified, but not as the target.
    targets = TARGETS.copy()
    targets[0] = (LABELS[0] + 2) % 3
    adversarial = np.asarray(ATTACKS[name](CLASSIFIER, IMAGES, labels, KEY, targets=targets))
    is_success = predicted(adversarial) == targets
    moved = (adversarial != IMAGES).any((1, 2, 3))
    np.testing.assert_array_equal(moved, is_success)
    assert is_success.any() and not is_success.all()
    # An optimum of a linear model: all pixels of the target's block rise, all others fall.
    scores = np.asarray(CLASSIFIER(IMAGES)) - 0.4
    scores[np.arange(9), targets] += 0.8
    possible = scores.argmax(-1) == targets
    assert not (is_success & ~possible).any()
    if name == "apgd":
        np.testing.assert_array_equal(is_success, possible)


@pytest.mark.slow
def test_names_of_targets_choose_wrong_classes():
    least = np.asarray(attacks.choose_targets("least_likely", CLASSIFIER, IMAGES, LABELS))
    np.testing.assert_array_equal(least, np.asarray(CLASSIFIER(IMAGES)).argmin(-1))
    many = np.repeat(IMAGES[:1], 600, 0)
    drawn = np.asarray(attacks.choose_targets("random", CLASSIFIER, many, np.full(600, 2), KEY))
    assert set(drawn.tolist()) == {0, 1} and 240 < (drawn == 0).sum() < 360
    keys = jax.random.split(KEY, 9)
    chosen = np.asarray(attacks.choose_targets("random", CLASSIFIER, IMAGES, LABELS, keys))
    part = attacks.choose_targets("random", CLASSIFIER, IMAGES[4:6], LABELS[4:6], keys[4:6])
    np.testing.assert_array_equal(part, chosen[4:6])
    named = ATTACKS["pgd"](CLASSIFIER, IMAGES, LABELS, keys, targets="random")
    given = ATTACKS["pgd"](CLASSIFIER, IMAGES, LABELS, keys, targets=chosen)
    np.testing.assert_array_equal(named, given)


@pytest.mark.parametrize(
    "targets, message",
    [
        ("likeliest", "targets is 'likeliest'; available: least_likely, random"),
        (TARGETS[:3], r"targets are int64\[3\] for 9 images; expected one integer for each"),
        (TARGETS + 3, r"targets span \[3, 5\]; logits have 3 classes: expected \[0, 2\]"),
        (LABELS, "The target of image 0 is ., which is its label; expected another class"),
        (7, "targets are a int; expected an array of classes"),
    ],
)
def test_targets_that_mean_nothing_are_refused(targets, message):
    with pytest.raises(UsageError, match=message):
        ATTACKS["pgd"](CLASSIFIER, IMAGES, LABELS, KEY, targets=targets)


def test_targets_without_an_effect_are_refused():
    hyper = dict(step_size=0.02, **BALL, targets=TARGETS)
    with pytest.raises(UsageError, match="adversarial_kl are given; expected a loss that reads"):
        attacks.pgd(CLASSIFIER, IMAGES, LABELS, KEY, loss=objectives.adversarial_kl, **hyper)
    with pytest.raises(UsageError, match="tau and targets are given"):
        attacks.friendly_pgd(CLASSIFIER, IMAGES, LABELS, KEY, **hyper)


def test_a_result_names_its_targets():
    config = digits.get_config()
    config.evaluation = "apgd:targets=least_likely"
    *_, attack = evaluation_attacks(settings.resolve(config))
    assert attack.conditions["targets"] == "least_likely"
