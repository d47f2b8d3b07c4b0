"""Warnings: each is given where it should be, and nowhere else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from cat_jax.evaluation import checks

FINE = {"natural": 0.8, "robust": 0.5, "fgsm": 0.55, "zero_gradients": 0.0, "mask": 0.6}
CHANCE = FINE | {"natural": 0.1, "robust": 0.105, "fgsm": 0.11}


def warnings(*history, num_examples=1000, num_classes=10):
    return checks.warnings(history, num_examples=num_examples, num_classes=num_classes)


@pytest.mark.parametrize(
    "history, word",
    [
        ([CHANCE] * 3, "(10.5%) has been at chance (10.0%)"),
        ([FINE, FINE | {"robust": 0.02, "fgsm": 0.7}], "70.0% under FGSM but 2.0% under PGD"),
        ([FINE | {"zero_gradients": 0.3}], "At 30.0% of the validation images"),
        ([FINE | {"mask": 0.01}], "The mean of the mask M is 0.010"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(history, word):
    (text,) = warnings(*history)
    assert word in text and "\n" not in text


@pytest.mark.parametrize(
    "history",
    [
        [FINE],
        [CHANCE] * 2,
        [CHANCE, CHANCE, FINE],
        [CHANCE, FINE, CHANCE, CHANCE],
        [FINE | {"robust": 0.14, "fgsm": 0.2}] * 3,  # Above chance, if only just.
        [FINE | {"fgsm": 0.2, "robust": 0.05}],  # Weak under both.
        [FINE | {"zero_gradients": 0.05}],
    ],
)
def test_nothing_is_said_of_what_is_well(history):
    assert warnings(*history) == []


def test_chance_allows_for_the_number_of_examples_and_of_classes():
    weak = [FINE | {"robust": 0.14, "fgsm": 0.2}] * 3
    assert warnings(*weak, num_examples=50) and not warnings(*weak, num_examples=5000)
    assert not warnings(*weak, num_examples=50, num_classes=100)


CONSTANT = FINE | {"natural": 0.1135, "robust": 0.1135, "fgsm": 0.1135}


@pytest.mark.parametrize(
    "now, kwargs",
    [
        (CONSTANT | {"answers": 1}, {}),
        (CONSTANT | {"answers": 1}, {"adversarial": False}),
        (CONSTANT, {}),  # Answers were not counted: no attack changes anything.
        (CONSTANT, {"majority": 0.1126}),
    ],
)
def test_one_answer_for_all_is_seen_at_the_first_validation(now, kwargs):
    (text,) = checks.warnings([now], num_examples=5000, num_classes=10, **kwargs)
    assert "one class for every image (accuracy 11.3%" in text and "\n" not in text


@pytest.mark.parametrize(
    "now", [CONSTANT | {"answers": 2}, CONSTANT | {"robust": 0.11}, FINE | {"fgsm": 0.8}]
)
def test_more_answers_are_no_news(now):
    assert checks.warnings([now], num_examples=5000, num_classes=10) == []


def test_chance_is_the_share_of_the_most_frequent_class():
    weak = [FINE | {"natural": 0.4, "robust": 0.31, "fgsm": 0.35, "answers": 5}] * 3
    assert checks.warnings(weak, num_examples=5000, num_classes=10) == []
    (text,) = checks.warnings(weak, num_examples=5000, num_classes=10, majority=0.32)
    assert "(31.0%) has been at chance (32.0%)" in text


def test_plain_training_is_not_warned_of_weakness():
    weak = [CHANCE | {"zero_gradients": 0.9, "answers": 4}] * 3
    assert checks.warnings(weak, num_examples=1000, num_classes=10, adversarial=False) == []


def test_weakness_is_expected_while_the_radius_grows():
    """Validations attack at the final radius."""
    weak = [CHANCE | {"epoch": epoch, "fgsm": 0.4} for epoch in (1, 2, 3, 4)]
    arguments = dict(num_examples=1000, num_classes=10, warmup_epochs=2)
    assert checks.warnings(weak[:1], **arguments) == []
    assert [text[:12] for text in checks.warnings(weak[:3], **arguments)] == ["Accuracy is "]
    texts = checks.warnings(weak, **arguments)
    assert "has been at chance" in texts[0] and "40.0% under FGSM" in texts[1]


@pytest.mark.parametrize(
    "kwargs, remedy, absent",
    [
        ({}, "grow from 0 (--config.conventions=warmup", "longer"),
        ({"warmup_epochs": 0.5}, "grow for longer than 0.5 epochs (config.attack.warm", "from 0"),
        ({"adversarial": False}, "In another workdir, try a smaller learning rate.", "radius"),
    ],
)
def test_the_remedy_is_one_that_the_run_does_not_have_yet(kwargs, remedy, absent):
    now = CONSTANT | {"answers": 1, "epoch": 0.25}
    (text,) = checks.warnings([now], num_examples=5000, num_classes=10, **kwargs)
    assert remedy in text and absent not in text


def test_answers_are_counted():
    images = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.4]], np.float32).reshape(3, 1, 2, 1)
    assert checks.num_answers(Partial(linear, jnp.eye(2)), images) == 2
    assert checks.num_answers(lambda x: linear(jnp.zeros((2, 2)), x), images) == 1


def linear(weights, images):
    return images.reshape(len(images), -1) @ weights


def test_zero_gradients_are_counted_where_the_cross_entropy_is_flat():
    images = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5], [1.0, 1.0]], np.float32)
    images = images.reshape(4, 1, 2, 1)
    labels = np.array([0, 0, 0, 1])
    steep = Partial(linear, jnp.array([[0.0, 1e3], [1e3, 0.0]]))  # Right by 1000 logits: flat.
    assert checks.zero_gradients(steep, images, labels) == 0.25
    assert checks.zero_gradients(Partial(linear, jnp.eye(2)[::-1]), images, labels) == 0.0
    assert checks.zero_gradients(Partial(linear, jnp.zeros((2, 2))), images, labels) == 1.0
    assert jax.tree.leaves(steep), "weights are traced, not compiled in"
