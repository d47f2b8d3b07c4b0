"""The conditions of an attack are its arguments, and they are what it does."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cat_jax import attacks, objectives
from cat_jax.attacks.conditions import LOSSES, SPECIAL_CASES
from cat_jax.attacks.named import NamedAttack
from cat_jax.errors import UsageError

PGD = functools.partial(attacks.pgd, epsilon=8 / 255, step_size=0.003, num_steps=20)
WEIGHTS = np.random.default_rng(0).normal(size=(12, 10)).astype(np.float32)
IMAGES = np.random.default_rng(1).uniform(size=(6, 2, 2, 3)).astype(np.float32)
LABELS = np.arange(6, dtype=np.int32)


def linear(images):
    return images.reshape(len(images), -1) @ WEIGHTS


def conditions(attack, name="a"):
    found = NamedAttack(name, attack).conditions
    assert json.loads(json.dumps(found, allow_nan=False)) == found, "plain JSON values"
    return found


def test_conditions_are_the_arguments_and_the_defaults_of_the_others():
    assert conditions(PGD, "pgd20") == {
        "attack": "pgd20",
        "norm": "linf",
        "epsilon": 8 / 255,
        "step_size": 0.003,
        "num_steps": 20,
        "restarts": 1,
        "random_start": True,
        "loss": "cross_entropy",
        "clipped": True,
    }
    unclipped = conditions(functools.partial(PGD, pixel_range=None, random_start=False))
    assert not unclipped["clipped"] and not unclipped["random_start"]
    assert conditions(functools.partial(PGD, norm="l2", epsilon=2.0))["epsilon"] == 2.0
    assert conditions(attacks.restarts(PGD, 5)) == conditions(PGD) | {"restarts": 5}
    margin = conditions(functools.partial(attacks.cw_linf, **PGD.keywords))
    assert margin == conditions(PGD) | {"loss": "margin", "kappa": 50.0}
    square = conditions(functools.partial(attacks.square_counted, epsilon=0.1, num_queries=1000))
    assert square["num_queries"] == 1000 and "num_steps" not in square
    assert NamedAttack("natural", None).conditions == {"attack": "natural"}


def test_a_search_at_lower_precision_is_a_condition():
    search = attacks.at_precision(PGD, "bfloat16")
    lower = {"search_precision": "bfloat16"}
    assert conditions(search) == conditions(PGD) | lower
    nearer = NamedAttack("a", search).at(4 / 255).conditions
    assert nearer["step_size"] == 0.0015 and nearer["search_precision"] == "bfloat16"
    nearest = functools.partial(attacks.fmn, epsilon=0.1)
    assert NamedAttack("a", attacks.at_precision(nearest, "bfloat16")).is_minimum_norm
    members = tuple(NamedAttack(name, search) for name in "ab")
    assert NamedAttack("worst", None, worst_of=members).conditions.items() >= lower.items()


def test_an_attack_of_a_user_is_described_by_its_own_arguments():
    def corners(logits_fn, images, labels, keys, *, epsilon, tries=3, loss=objectives.no_loss):
        raise AssertionError("it is not run")

    found = conditions(functools.partial(corners, epsilon=0.15))
    assert found["epsilon"] == 0.15 and found["tries"] == 3
    assert found["loss"] == "cat_jax.objectives.no_loss"
    for attack in (corners, lambda logits_fn, images, labels, keys: images):
        with pytest.raises(UsageError, match=r"has epsilon=None; expected one number: .*partial"):
            conditions(attack)
    with pytest.raises(UsageError, match=r"epsilon=8.0; expected \[0, 1\]"):
        conditions(functools.partial(corners, epsilon=8))
    with pytest.raises(UsageError, match="expected one number"):
        conditions(functools.partial(corners, epsilon=np.array([0.1, 0.2])))


@pytest.mark.parametrize("function", SPECIAL_CASES, ids=lambda function: function.__name__)
def test_a_special_case_is_the_attack_that_describes_it(function):
    """The same images, so that the conditions cannot disagree with what is run."""
    own = (
        {"num_steps": 3, "step_size": 0.05}
        if function
        in (
            attacks.cw_linf,
            attacks.friendly_pgd,
        )
        else {}
    )
    if function is attacks.apgd_t:
        own = {"num_steps": 5}
    expanded = SPECIAL_CASES[function](epsilon=0.1, **own)
    batch = (jnp.asarray(IMAGES), jnp.asarray(LABELS), jax.random.key(0))
    logits_fn = jax.tree_util.Partial(linear)
    one = function(logits_fn, *batch, epsilon=0.1, **own)
    if function is attacks.apgd_t:  # Its loss has no name outside of it.
        assert expanded.func is attacks.apgd and expanded.keywords["num_targets"] == 9
        return
    another = expanded(logits_fn, *batch)
    np.testing.assert_array_equal(one[0] if isinstance(one, tuple) else one, another)


def test_every_loss_of_an_attack_has_a_name_of_its_own():
    assert len(set(LOSSES.values())) == len(LOSSES)


def test_of_a_cascade_the_attacks_before_count_too():
    first = NamedAttack("natural", None)
    second = NamedAttack("pgd20", PGD, after=first)
    third = NamedAttack("pgd100", functools.partial(PGD, num_steps=100), after=second)
    assert second.conditions == conditions(PGD, "pgd20") | {"after": [{"attack": "natural"}]}
    assert third.conditions["after"] == [
        {"attack": "natural"},
        {"attack": "pgd20", "num_steps": 20},
    ]
    assert [attack.name for attack in third.chain()] == ["natural", "pgd20", "pgd100"]
    other = third._replace(after=second._replace(attack=functools.partial(PGD, norm="l2")))
    assert other.conditions != third.conditions
    assert other.conditions["after"][1] == {"attack": "pgd20", "num_steps": 20, "norm": "l2"}


def test_at_another_radius_the_step_keeps_its_share():
    named = NamedAttack("pgd20", attacks.restarts(PGD, 5)).at(0.1)
    want = {"epsilon": 0.1, "step_size": 0.003 * (0.1 / (8 / 255)), "restarts": 5}
    assert {name: named.conditions[name] for name in want} == pytest.approx(want)
    worst = NamedAttack("worst", attacks.union([PGD, functools.partial(PGD, epsilon=0.01)]))
    assert worst.conditions["epsilon"] == 8 / 255
    assert [part["epsilon"] for part in worst.at(0.5).conditions["attacks"]] == [0.5, 0.5]
    with pytest.raises(UsageError, match="has radius 0"):
        named.at(0.0).at(0.1)
    with pytest.raises(UsageError, match="natural is no attack"):
        NamedAttack("natural", None).at(0.1)


def test_equal_attacks_are_equal_whatever_they_are_called():
    def identity(**arguments):
        return NamedAttack("a", functools.partial(PGD, **arguments)).identity

    assert identity() == identity() and hash(identity()) == hash(identity())
    assert identity() != identity(epsilon=0.1) and identity(num_steps=1) != identity(num_steps=True)
    start = jnp.zeros((1, 2, 2, 3))
    assert identity(start=start) == identity(start=start) != identity(start=start.copy())
    assert NamedAttack("a", attacks.restarts(PGD, 2)).identity != NamedAttack("a", PGD).identity
    losses = [objectives.AdversarialMargin(kappa) for kappa in (1.0, 1.0, 2.0)]
    one, same, other = (identity(loss=loss) for loss in losses)
    assert one == same != other


def test_the_state_that_an_attack_reads_is_part_of_it():
    scale, seen = 1.0, []

    def scaled(logits_fn, images, labels, keys, *, epsilon):
        return images + scale * epsilon

    def listing(logits_fn, images, labels, keys, *, epsilon):
        seen.append(images.shape)
        return images

    def identity(attack):
        return NamedAttack("a", functools.partial(attack, epsilon=0.1)).identity

    before = identity(scaled)
    scale = 2.0
    assert before is not None and identity(scaled) not in (None, before)
    assert identity(listing) is None, "a list may change at every call"
    assert NamedAttack("a", functools.partial(PGD, start=np.zeros(3))).identity is None
