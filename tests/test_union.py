"""Unions of balls: the worst case of several attacks, and training in several balls."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from cat_jax import attacks
from cat_jax.attacks.named import NamedAttack
from cat_jax.configs import digits, preact_cifar10
from cat_jax.errors import UsageError
from cat_jax.experiment import labels, settings
from cat_jax.experiment.method import build_attack

KEY = jax.random.key(0)
WEIGHTS = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
IMAGES = np.random.default_rng(1).uniform(0.4, 0.6, (16, 2, 3, 2)).astype(np.float32)
LABELS = np.argmax(IMAGES.reshape(16, 12) @ WEIGHTS, -1)
LINF = attacks.NormBall("linf", 0.05, 0.01)
L2 = attacks.NormBall("l2", 0.3, 0.06)  # The worse ball: 0.3 |w|_2 is more than 0.05 |w|_1.
UPHILL = np.where(LABELS == 0, 1, -1)[:, None] * (WEIGHTS[:, 1] - WEIGHTS[:, 0])


def apply(weights, images):
    return images.reshape(len(images), -1) @ weights, weights


def gains(images):
    """What a linear function gains, as a part of its best gain in each of the two balls."""
    gain = np.sum((np.asarray(images) - IMAGES).reshape(16, 12) * UPHILL, -1)
    in_linf = gain / (0.05 * np.abs(UPHILL).sum(-1))
    return in_linf, gain / (0.3 * np.linalg.norm(UPHILL, axis=-1))


@pytest.mark.parametrize("combine", ["worst", "average"])
def test_a_training_attack_in_two_balls_on_a_linear_model(combine):
    """MSD ends at the best point of the worse ball; with the average, both balls are drawn."""
    attack = jax.jit(
        functools.partial(
            *(attacks.union_with_state, apply),
            balls=(LINF, L2),
            combine=combine,
            num_steps=30,
            random_start=False,
        )
    )
    keys = jax.random.split(KEY, 16)
    adversarial, _ = attack(jnp.asarray(WEIGHTS), IMAGES, LABELS, keys)
    in_linf, in_l2 = gains(adversarial)
    if combine == "worst":
        np.testing.assert_allclose(in_l2, 1, rtol=1e-3)
        return
    is_l2 = in_l2 > 0.999
    np.testing.assert_allclose(np.where(is_l2, in_l2, in_linf), 1, rtol=1e-3)
    assert 3 < is_l2.sum() < 13
    order = np.random.default_rng(0).permutation(16)
    permuted, _ = attack(jnp.asarray(WEIGHTS), IMAGES[order], LABELS[order], keys[order])
    np.testing.assert_allclose(permuted, adversarial[order], atol=1e-6)


def test_an_image_is_right_in_a_union_only_if_it_withstands_every_attack():
    """The result says the norms and radii of the attacks."""
    classifier = Partial(lambda w, x: apply(w, x)[0], jnp.asarray(WEIGHTS))
    members = [
        functools.partial(attacks.pgd, num_steps=2, **ball._asdict())
        for ball in (LINF._replace(step_size=0.05), L2._replace(step_size=0.3))
    ]
    keys = jax.random.split(KEY, 16)  # As in the union, so that each attack compiles once.
    results = [classifier(attack(classifier, IMAGES, LABELS, keys)) for attack in members]
    withstood = np.all([logits.argmax(-1) == LABELS for logits in results], 0)
    worst = attacks.union(members)
    adversarial = worst(classifier, IMAGES, LABELS, keys)
    np.testing.assert_array_equal(classifier(adversarial).argmax(-1) == LABELS, withstood)
    conditions = NamedAttack("union", worst).conditions
    assert conditions["norm"] == "union" and conditions["epsilon"] == 0.3
    assert [part["norm"] for part in conditions["attacks"]] == ["linf", "l2"]
    assert labels.threat(conditions) == "L-infinity 0.05 and L2 0.3"
    assert labels.attack(conditions) == "union at L-infinity 0.05 and L2 0.3"
    lower = NamedAttack("union", attacks.at_precision(worst, "bfloat16")).conditions
    assert labels.attack(lower) == f"{labels.attack(conditions)}, searched in bfloat16"
    both = NamedAttack("union", attacks.union(members[1:] * 2)).conditions
    assert both["norm"] == "l2" and labels.threat(both) == "L2 0.3"


def test_a_config_trains_in_a_union_of_balls():
    config = digits.get_config("at")
    config.attack.union = ("l2:0.5", "l1:4")
    config.attack.combine = "average"
    config.attack.closing_forward = False
    attack = build_attack(settings.resolve(config).attack)
    balls = attack.keywords["balls"]
    assert [ball.norm for ball in balls] == ["linf", "l2", "l1"] and balls[2].epsilon == 4.0
    ratios = [ball.step_size / ball.epsilon for ball in balls]
    np.testing.assert_allclose(ratios, ratios[0])
    config.attack.union = ("l3:0.5",)
    with pytest.raises(UsageError, match=r"config.attack.union is \('l3:0.5',\); expected balls"):
        settings.resolve(config)
    config.attack.union = ("l2:0",)
    with pytest.raises(
        UsageError, match=r"config.attack.union has l2:0; expected a radius above 0"
    ):
        build_attack(settings.resolve(config).attack)


@pytest.mark.parametrize("variant", ["at_l2", "cat_cw_l2"])
def test_a_variant_in_l2_has_its_ball_in_training_validation_and_tests(variant):
    config = settings.resolve(preact_cifar10.get_config(variant))
    for section in (config.attack, config.validation, config.test):
        assert (section.norm, section.epsilon) == ("l2", 0.5)
    assert (config.attack.step_size, config.test.step_size) == (0.125, 0.05)
    assert config.attack.loss == ("margin" if variant == "cat_cw_l2" else "cross_entropy")
