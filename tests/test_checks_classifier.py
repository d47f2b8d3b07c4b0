"""An honest classifier raises no finding; masked versions of the same one raise the right ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import robust_digits
from compilations import compiled_names
from jax import lax
from jax.tree_util import Partial
from robust_digits import EPSILON, network

from cat_jax.errors import UsageError
from cat_jax.evaluation import checks
from cat_jax.evaluation.checks import findings
from cat_jax.evaluation.checks.classifier import radii_to_one
from cat_jax.networks.norm import BatchNorm

NAMES = (
    "finite_logits finite_gradients outputs_are_logits precision_suffices better_than_chance "
    "repeatable_logits independent_of_batch nonzero_gradients more_starts_are_stronger "
    "larger_epsilon_is_stronger epsilon_one_fools_all"
).split()
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def batch():
    return robust_digits.batch()


@pytest.fixture(scope="module")
def weights():
    return robust_digits.trained()


# What may be done to the images before the network, and to its logits behind it.


def unchanged(values):
    return values


def quantised(images):
    """As JPEG does: the cosine transform of a block, rounded, and back."""
    i = np.arange(8)
    cosines = np.cos(np.pi * (2 * i[None, :] + 1) * i[:, None] / 16) / 2
    cosines[0] /= np.sqrt(2)
    there = jnp.einsum("ij,bjkc,lk->bilc", cosines, images, cosines)
    return jnp.einsum("ji,bjkc,kl->bilc", cosines, 0.2 * jnp.round(there / 0.2), cosines)


def blind_to_noise(images):
    """No gradient once there is ink in the first column, where digits have none."""
    noisy = jnp.max(images[:, :, :1], axis=(1, 2, 3), keepdims=True) > 0.25
    return jnp.where(noisy, lax.stop_gradient(images), images)


def same_noise(images):
    """Drawn in Python, so once for each compilation; as from a fixed key."""
    return images + np.random.default_rng(0).normal(0, 0.1, images.shape).astype(images.dtype)


def with_a_root(images):
    """The gradient of a root is infinite at 0, and 0 times that is NaN."""
    return images + 0 * jnp.sqrt(images)


def normalised_by_the_batch(images):
    variables = {
        "params": {"scale": jnp.array([0.4]), "bias": jnp.array([0.3])},
        "batch_stats": {"mean": jnp.zeros(1), "var": jnp.ones(1)},
    }
    return BatchNorm().apply(variables, images, train=True, mutable=["batch_stats"])[0]


def steep(logits):
    return 100 * logits


def sigmoid(logits):
    """Probabilities of each class apart."""
    return jax.nn.sigmoid(logits)


def far_off(logits):
    """Float32 has steps of 8 there."""
    return logits + 1e8


def one_answer(logits):
    return logits + 1e3 * jax.nn.one_hot(3, 10)[None]


def undefined(logits):
    """The logarithm of a negative number, for some images."""
    return logits + 0 * jnp.log(logits[:, :1] + 5)


FRONTS = [unchanged, quantised, blind_to_noise, same_noise, normalised_by_the_batch]
FRONTS += [with_a_root]
BACKS = [unchanged, jax.nn.log_softmax, jax.nn.softmax, undefined, steep]
BACKS += [sigmoid, far_off, one_answer]


def masked(front, back, weights, images):
    """`network` between members of FRONTS and BACKS: compiled once for all."""
    return lax.switch(back, BACKS, network(weights, lax.switch(front, FRONTS, images)))


def version(weights, front=unchanged, back=unchanged):
    return Partial(masked, jnp.array(FRONTS.index(front)), jnp.array(BACKS.index(back)), weights)


FRESH = np.random.default_rng(0)


def fresh_noise(weights, images):
    def draw():
        return FRESH.normal(0, 0.1, images.shape).astype(images.dtype)

    form = jax.ShapeDtypeStruct(images.shape, images.dtype)
    return network(weights, images + jax.pure_callback(draw, form))


def examine(logits_fn, batch, *, epsilon=EPSILON, **kwargs):
    found = checks.examine(logits_fn, *batch, KEY, epsilon=epsilon, **kwargs)
    assert [f.name for f in found] == NAMES
    assert all(type(f.passed) is bool and f.text and "\n" not in f.text for f in found), found
    return {f.name: f for f in found}


def failed(found):
    return {name for name, f in found.items() if not f.passed}


@pytest.mark.parametrize(
    "mask, want",
    [
        ({}, set()),
        ({"back": jax.nn.log_softmax}, set()),
        ({"back": jax.nn.softmax}, {"outputs_are_logits"}),
        ({"back": sigmoid}, {"outputs_are_logits"}),
        ({"front": with_a_root}, {"finite_gradients"}),
        ({"back": steep}, {"nonzero_gradients", "epsilon_one_fools_all"}),
        ({"front": quantised}, {"nonzero_gradients", "epsilon_one_fools_all"}),
        ({"front": blind_to_noise}, {"larger_epsilon_is_stronger", "epsilon_one_fools_all"}),
        ({"front": same_noise}, {"independent_of_batch"}),
    ],
)
def test_each_mask_is_seen_by_the_check_that_is_for_it(weights, batch, mask, want):
    found = examine(version(weights, **mask), batch)
    assert failed(found) == want, found


@pytest.mark.parametrize(
    "mask, least",
    [
        ({"back": undefined}, {"finite_logits", "finite_gradients"}),
        ({"front": normalised_by_the_batch}, {"independent_of_batch"}),
        ({"back": far_off}, {"precision_suffices"}),
        ({"back": one_answer}, {"better_than_chance", "epsilon_one_fools_all"}),
    ],
)
def test_attacks_may_go_wrong_besides(weights, batch, mask, least):
    found = examine(version(weights, **mask), batch)
    assert least <= failed(found), found


@pytest.mark.parametrize("seed", range(3))
def test_an_untrained_network_does_not_pass(weights, batch, seed):
    keys = jax.random.split(jax.random.key(seed), len(weights))
    untrained = [
        w.std() * jax.random.normal(k, w.shape) for w, k in zip(weights, keys, strict=True)
    ]
    found = examine(version(untrained), batch)
    assert "better_than_chance" in failed(found), found


@pytest.mark.parametrize(
    "mask, words",
    [
        ({"front": quantised}, "attacks.straight_through"),
        ({"back": steep}, "logits too far apart"),
        ({"back": sigmoid}, "jnp.log(mean(softmax))"),
    ],
)
def test_a_finding_names_its_remedy(weights, batch, mask, words):
    texts = [f.text for f in examine(version(weights, **mask), batch).values() if not f.passed]
    assert any(words in text for text in texts), texts


@pytest.mark.slow
def test_fresh_noise_is_seen(weights, batch):
    found = examine(Partial(fresh_noise, weights), batch)
    assert {"repeatable_logits", "independent_of_batch"} <= failed(found), found
    assert "EOT" in found["repeatable_logits"].text


@pytest.mark.parametrize(
    "epsilon, at",
    [
        (0.0, ["0", "1"]),
        (0.3, ["0.075", "0.15", "0.3", "0.6", "1"]),
        (1, ["0.25", "0.5", "1"]),
    ],
)
def test_the_curve_goes_from_a_quarter_of_epsilon_to_one(weights, batch, epsilon, at):
    found = examine(version(weights), batch, epsilon=epsilon)
    assert not failed(found), found
    curve = found["larger_epsilon_is_stronger"].text.removesuffix(".").partition("by epsilon: ")[2]
    assert [point.partition(" at ")[2] for point in curve.split(", ")] == at
    if epsilon == 0:
        right = jnp.sum(jnp.argmax(network(weights, batch[0]), axis=-1) == batch[1])
        assert curve == f"{right} at 0, 0 at 1"
        assert (
            f"leaves {right} of 64 images correct after 1 random start and {right} after 5"
            in str(found)
        )


def test_wrong_everywhere_is_a_finding_about_the_answers_alone(weights, batch):
    images, labels = batch
    labels = (jnp.argmax(network(weights, images), axis=-1) + 1) % 10
    found = examine(version(weights), (images, labels))
    assert failed(found) == {"better_than_chance"}, found
    assert "epsilon: 0 at 0.025, 0 at 0.05, 0 at 0.1, 0 at 0.2, 0 at 0.4, 0 at 0.8, 0 at 1." in str(
        found
    )


def test_the_same_key_gives_the_same_findings(weights, batch):
    logits_fn = version(weights)
    assert examine(logits_fn, batch) == examine(logits_fn, batch)


@pytest.mark.slow
@pytest.mark.parametrize("num_classes, pixel_range", [(2, None), (3, (0.0, 1.0))])
def test_few_classes_and_one_compilation_for_two_checkpoints(num_classes, pixel_range):
    def linear(weights, images):
        return (images - 0.5).reshape(len(images), -1) @ weights

    images = jax.random.uniform(KEY, (7, 2, 3, 1))
    first, second = jax.random.normal(KEY, (2, 6, num_classes))
    of_first, of_second = (jnp.argmax(linear(w, images), axis=-1) for w in (first, second))
    hyper = dict(pixel_range=pixel_range)
    assert not failed(examine(Partial(linear, first), (images, of_first), **hyper))
    with compiled_names() as names:
        assert not failed(examine(Partial(linear, second), (images, of_second), **hyper))
    assert not names, names


@pytest.mark.parametrize(
    "images, labels, epsilon, word",
    [
        (np.zeros((1, 2, 2, 1), np.float32), [0], 0.1, "1 images; expected at least 2"),
        (np.zeros((2, 2, 2, 1), np.uint8), [0, 0], 0.1, r"jnp.float32\) / 255"),
        (np.full((2, 2, 2, 1), 2, np.float32), [0, 0], 0.1, "expected \\[0, 1\\]"),
        (np.zeros((2, 2, 2, 1), np.float32), [0, 3], 0.1, "3 classes"),
        (np.zeros((2, 2, 2, 1), np.float32), [0, 0], 8, "8/255"),
    ],
)
def test_what_cannot_be_examined_is_said(images, labels, epsilon, word):
    def linear(images):
        return images.reshape(len(images), -1) @ jnp.ones((4, 3))

    with pytest.raises(UsageError, match=word) as refused:
        checks.examine(linear, images, np.array(labels), KEY, epsilon=epsilon)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "epsilon, radii",
    [
        (0, [0, 1]),
        (1, [1 / 4, 1 / 2, 1]),
        (0.5, [1 / 8, 1 / 4, 1 / 2, 1]),
        (0.3, [0.075, 0.15, 0.3, 0.6, 1]),
    ],
)
def test_radii_double_as_far_as_one(epsilon, radii):
    assert radii_to_one(epsilon) == radii


def test_an_image_broken_at_first_may_not_stand_in_the_end():
    one, more = np.array([True, True, False, False]), np.array([True, False, False, True])
    good = findings.more_starts_are_stronger("PGD-10", one, one & more, 5)
    assert (
        good.passed
        and "2 of 4 images correct after 1 random start and 1 after 5; 0 images" in good.text
    )
    bad = findings.more_starts_are_stronger("PGD-10", one, more, 5)
    assert not bad.passed and "2 after 5; 1 images fooled by the first start" in bad.text


@pytest.mark.parametrize(
    "right, total, passed",
    [
        ([5], 64, True),
        ([0, 1, 0], 10, True),  # One image is chance.
        ([0, 2, 0], 10, False),
        ([500, 520, 540, 0], 1000, True),
        ([500, 400, 421, 0], 1000, False),
    ],
)
def test_accuracy_may_rise_by_two_percent_or_one_image(right, total, passed):
    radii = [0.1 * (i + 1) for i in range(len(right))]
    assert findings.larger_epsilon_is_stronger(right, radii, total).passed == passed


@pytest.mark.parametrize("zero, total, passed", [(0, 64, True), (1, 64, False), (1, 100, True)])
def test_one_percent_may_be_without_gradient(zero, total, passed):
    flat = np.arange(total) < zero
    assert findings.nonzero_gradients(flat, flat).passed == passed


@pytest.mark.parametrize(
    "outputs, passed",
    [
        ([[0.2, 0.8], [1.0, 0.0]], False),
        ([[0.2, 0.8004], [1.0, 0.0]], False),  # Rounded.
        ([[0.2, 0.81], [1.0, 0.0]], False),
        ([[0.2, 0.8], [1.1, -0.1]], True),
        ([[0.2, 0.8], [np.nan, 0.0]], True),  # Whatever it is: `finite` says so.
    ],
)
def test_probabilities_are_told_from_logits(outputs, passed):
    assert findings.outputs_are_logits(np.array(outputs)).passed == passed


@pytest.mark.parametrize(
    "again, passed",
    [([10.0, 1.0], True), ([10.0, 1.0009], True), ([10.0, 1.0011], False), ([10.0, np.nan], False)],
)
def test_rounding_is_no_difference(again, passed):
    once = np.array([[10.0, 1.0]])
    for check in (findings.repeatable_logits, findings.independent_of_batch):
        assert check(once, np.array([again])).passed == passed
        assert check(np.array([again]), np.array([again])).passed


@pytest.mark.parametrize(
    "logits, passed",
    [
        ([[3.0, -2.0, 0.0]], True),
        ([[3e4, -2e4, 0.0]], True),  # Far apart, and well resolved.
        ([[1e8 + 16, 1e8, 1e8 - 8]], False),
        ([[1e8, 1e8, 1e8]], False),  # All that is left is ties.
        ([[1e4 + 3, 1e4, 1e4 - 4]], True),
        ([[0.0, 0.0, 0.0]], True),  # Constant; another check sees that.
        ([[np.nan, 3.0, -2.0]], True),
    ],
)
def test_logits_are_resolved_by_their_dtype(logits, passed):
    assert findings.precision_suffices(np.array(logits, np.float32)).passed == passed


def test_float64_resolves_more():
    assert findings.precision_suffices(np.array([[1e8 + 16, 1e8, 1e8 - 8]])).passed


@pytest.mark.parametrize(
    "given, labels, passed",
    [
        ([0, 1, 2, 0, 1, 2], [0, 1, 2, 0, 1, 2], True),
        ([0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 2], False),  # The majority class, always.
        ([0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], True),  # Labels of one class say nothing.
        (list(range(10)) * 6, [0] * 54 + list(range(6)), False),
        ([0] * 54 + list(range(6)), [0] * 54 + list(range(6)), True),  # Unbalanced, and all right.
        (list(range(10)) * 6, list(range(10)) * 3 + list(range(1, 10)) * 3 + [0] * 3, True),
    ],
)
def test_answers_are_compared_with_chance(given, labels, passed):
    found = findings.better_than_chance(np.eye(10)[given], np.array(labels))
    assert found.passed == passed, found
