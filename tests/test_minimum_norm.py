"""FMN and DDN: closed forms, box and radius in float64, and the curve of one run beside APGD."""

import functools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import robust_digits
from compilations import compiled_names
from hypothesis import strategies
from jax.tree_util import Partial

from cat_jax import attacks, data, losses
from cat_jax.attacks import NamedAttack
from cat_jax.errors import UsageError
from cat_jax.evaluation import Evaluator

KEY = jax.random.key(0)
SHAPE = (6, 3, 3, 1)
DUAL_ORDER = {"linf": 1, "l2": 2, "l1": np.inf}
ORDER = {"linf": np.inf, "l2": 2, "l1": 1}
ATTACKS = [
    *(pytest.param(functools.partial(attacks.fmn, norm=norm), norm, id=norm) for norm in ORDER),
    pytest.param(attacks.ddn, "l2", id="ddn"),
]


def linear(weights, images):
    return images.reshape(len(images), -1) @ weights


def problem(seed=0, low=0.4, high=0.6):
    """(weights, images, labels): the first image is wrong from the start.

    The logits are large, so that near a boundary the cross-entropy sees two classes only.
    """
    r = np.random.default_rng(seed)
    weights = 30 * r.normal(size=(9, 4)).astype(np.float32)
    images = r.uniform(low, high, SHAPE).astype(np.float32)
    labels = linear(weights, images).argmax(-1)
    labels[0] = (labels[0] + 1) % 4
    return weights, images, labels


@pytest.mark.parametrize("attack, norm", ATTACKS)
def test_on_a_linear_model_it_ends_at_the_nearest_hyperplane(attack, norm):
    """At the least |z_y - z_k| / |w_y - w_k|, in the dual norm; one compilation for all weights."""
    for seed in (0, 1):
        weights, images, labels = problem(seed)
        logits_fn = Partial(linear, weights)
        with compiled_names() as names:
            adversarial = attack(logits_fn, images, labels, KEY, pixel_range=None)
        assert seed == 0 or not names, names
        normals = weights.T[labels][:, None] - weights.T[None]
        gaps = np.einsum("bkp,bp->bk", normals, images.reshape(6, -1))
        slopes = np.linalg.norm(normals, DUAL_ORDER[norm], axis=-1)
        slopes[np.arange(6), labels] = np.nan
        nearest = np.nanmin(np.maximum(gaps, 0) / slopes, axis=-1)
        distances = attacks.distances(logits_fn, images, labels, adversarial, norm=norm)
        assert nearest[0] == 0 and np.all(nearest[1:] > 0)
        last_change = 0.05 if attack is attacks.ddn else 0.005  # Of the radius, by a step.
        np.testing.assert_allclose(distances, nearest, rtol=last_change)
        np.testing.assert_array_equal(adversarial[0], images[0])


@pytest.mark.slow
@pytest.mark.parametrize("attack, norm", ATTACKS)
def test_it_stays_in_the_box_and_within_the_radius_in_float64(attack, norm):
    with jax.enable_x64(True):
        weights, *_ = problem()

        @hypothesis.settings(max_examples=15, deadline=None, derandomize=True)
        @hypothesis.given(
            strategies.integers(0, 99),
            strategies.sampled_from([0.0, 1e-3, 0.1, 1.0, 10.0]),
        )
        def check(seed, epsilon):
            epsilon = min(epsilon, 1.0) if norm == "linf" else epsilon
            r = np.random.default_rng(seed)
            images = np.clip(r.uniform(-0.5, 1.5, SHAPE), 0, 1)  # Many pixels are at an edge.
            labels = linear(weights, images).argmax(-1)
            adversarial = np.asarray(
                attack(Partial(linear, weights), images, labels, KEY, epsilon=jnp.array(epsilon))
            )
            assert adversarial.dtype == np.float64
            assert adversarial.min() >= 0 and adversarial.max() <= 1
            moved = np.linalg.norm((adversarial - images).reshape(6, -1), ORDER[norm], axis=-1)
            assert np.all(moved <= epsilon * (1 + 1e-12))
            fooled = linear(weights, adversarial).argmax(-1) != labels
            np.testing.assert_array_equal(fooled, moved > 0)

        check()


@pytest.mark.parametrize("attack, norm", ATTACKS)
def test_what_is_never_fooled_is_returned_unchanged_at_an_infinite_distance(attack, norm):
    """Also where the gradient is zero; inside `jit` and `vmap` the images are the same."""
    _, images, _ = problem()
    labels = np.zeros(6, int)

    def one_answer(images):
        return jnp.tile(jnp.array([[1.0, 0.0]]), (len(images), 1)) + 0 * images.sum()

    adversarial = attack(one_answer, images, labels, KEY)
    np.testing.assert_array_equal(adversarial, images)
    assert np.all(attacks.distances(one_answer, images, labels, adversarial, norm=norm) == np.inf)


@pytest.mark.slow
def test_inside_jit_vmap_and_grad():
    weights, images, labels = problem()
    run = functools.partial(attacks.fmn, Partial(linear, weights), num_steps=5)
    adversarial = run(images, labels, KEY)
    np.testing.assert_allclose(jax.jit(run)(images, labels, KEY), adversarial, atol=1e-6)
    mapped = jax.vmap(lambda x, y: run(x[None], y[None], KEY)[0])(images, labels)
    np.testing.assert_allclose(mapped, adversarial, atol=1e-6)
    assert not np.any(jax.grad(lambda x: jnp.sum(run(x, labels, KEY)))(images))


@pytest.mark.slow
def test_the_curve_of_one_run_has_the_accuracies_of_the_distances():
    """At two of the radii APGD is stronger on this network, by 5 points at most; else by 1."""
    split = data.load("digits").test.first(200)
    images, labels = data.to_unit(split.images), jnp.asarray(split.labels)
    weights = robust_digits.trained()
    logits_fn = Partial(robust_digits.network, weights)
    radii, gaps = [0.05, 0.1, 0.15, 0.2, 0.3], [0.01, 0.01, 0.05, 0.06, 0.01]
    fmn = NamedAttack("fmn", functools.partial(attacks.fmn, epsilon=0.1, step_size=1.0))
    evaluator = Evaluator(robust_digits.network, KEY, 200, jax.devices()[:1])
    curve = evaluator.curve(weights, fmn, split, [0.0, *radii])
    adversarial = attacks.fmn(logits_fn, images, labels)
    distances = np.asarray(attacks.distances(logits_fn, images, labels, adversarial))
    assert list(curve) == [0.0, *radii]
    for radius, result in curve.items():
        assert abs(result.accuracy - np.mean(distances > radius)) <= 1 / 200
        assert result.conditions["epsilon"] == radius and result.conditions["step_size"] == 1.0
    natural = losses.is_right(logits_fn(images), labels)
    assert curve[0.0].accuracy == natural.mean()
    for radius, gap in zip(radii, gaps, strict=True):
        found = attacks.apgd(logits_fn, images, labels, KEY, epsilon=jnp.array(radius))
        right = losses.is_right(logits_fn(found), labels).mean()
        assert abs(curve[radius].accuracy - right) <= gap, (radius, curve[radius].accuracy, right)


def test_conditions_have_the_norm_of_the_attack():
    ddn = NamedAttack("ddn", functools.partial(attacks.ddn, epsilon=0.5))
    fmn = NamedAttack("fmn", functools.partial(attacks.fmn, epsilon=0.5, norm="l1"))
    assert ddn.conditions["norm"] == "l2" and fmn.conditions["norm"] == "l1"
    assert ddn.is_minimum_norm and not NamedAttack("natural", None).is_minimum_norm


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(norm="l0"), "norm"),
        (dict(num_steps=0), "num_steps=0; expected at least 1"),
        (dict(gamma=2.0), r"gamma=2.0; expected \[0, 1\]"),
        (dict(step_size=0.0), "step_size=0.0; expected a number above 0"),
        (dict(epsilon=8), "epsilon=8; expected"),
    ],
)
def test_what_is_refused(arguments, message):
    weights, images, labels = problem()
    with pytest.raises(UsageError, match=message):
        attacks.fmn(Partial(linear, weights), images, labels, KEY, **arguments)
