"""FAB without targets: closed forms on linear classifiers, FAB-T with two classes, its runs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from cat_jax import attacks

RNG = np.random.default_rng(0)
IMAGES = RNG.uniform(0.3, 0.7, (6, 3, 3, 2))
WEIGHTS = RNG.normal(size=(18, 4))
KEY = jax.random.key(0)
LENGTHS = {
    "linf": lambda delta: np.abs(delta).max((1, 2, 3)),
    "l2": lambda delta: np.sqrt((delta**2).sum((1, 2, 3))),
    "l1": lambda delta: np.abs(delta).sum((1, 2, 3)),
}


def linear(weights, images):
    return images.reshape(len(images), -1) @ weights


def two_layers(weights, images):
    return jnp.tanh(images.reshape(len(images), -1) @ weights[0]) @ weights[1]


def distances(norm):
    """The distance of each image to the nearest boundary of the linear classifier."""
    logits = np.asarray(linear(WEIGHTS, IMAGES))
    labels = logits.argmax(-1)
    dual = {"linf": 1, "l2": 2, "l1": np.inf}[norm]
    nearest = []
    for scores, label in zip(logits, labels, strict=True):
        others = [k for k in range(4) if k != label]
        gaps = [scores[label] - scores[k] for k in others]
        sizes = [np.linalg.norm(WEIGHTS[:, k] - WEIGHTS[:, label], dual) for k in others]
        nearest.append(min(gap / size for gap, size in zip(gaps, sizes, strict=True)))
    return np.array(nearest), labels


@pytest.mark.slow
@pytest.mark.parametrize("norm", LENGTHS)
def test_on_a_linear_classifier_it_finds_the_nearest_boundary(float64, norm):
    nearest, labels = distances(norm)
    attack = functools.partial(attacks.fab, Partial(linear, WEIGHTS), IMAGES, labels, KEY)
    hyper = dict(num_steps=30, num_restarts=1, pixel_range=None, norm=norm)
    inside = attack(epsilon=0.99 * nearest, **hyper)
    np.testing.assert_array_equal(inside, IMAGES, "no image has a point within its distance")
    lengths = LENGTHS[norm](np.asarray(attack(epsilon=1.06 * nearest, **hyper)) - IMAGES)
    assert np.all(lengths > nearest) and np.all(lengths <= 1.06 * nearest)


@pytest.mark.slow
def test_with_two_classes_it_is_fab_t(float64):
    weights = (RNG.normal(size=(18, 5)), RNG.normal(size=(5, 2)))
    logits_fn = Partial(two_layers, weights)
    labels = np.asarray(logits_fn(IMAGES)).argmax(-1)
    hyper = dict(epsilon=0.3, num_steps=15)
    expected = attacks.fab_t(logits_fn, IMAGES, labels, KEY, num_targets=1, **hyper)
    adversarial = attacks.fab(logits_fn, IMAGES, labels, KEY, num_restarts=1, **hyper)
    np.testing.assert_allclose(adversarial, expected, atol=1e-12)
    assert np.abs(expected - IMAGES).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("norm, epsilon", [("linf", 0.08), ("l2", 0.4)])
def test_more_runs_lose_no_success_and_stay_in_the_ball(norm, epsilon):
    weights = (RNG.normal(size=(18, 12)), RNG.normal(size=(12, 4)))
    logits_fn = Partial(two_layers, jax.tree.map(np.float32, weights))
    images = IMAGES.astype(np.float32)
    labels = np.asarray(logits_fn(images)).argmax(-1)
    hyper = dict(epsilon=epsilon, num_steps=10, norm=norm)
    attack = functools.partial(attacks.fab, logits_fn, images, labels, KEY, **hyper)
    once, thrice = attack(num_restarts=1), attack(num_restarts=3)
    fooled = [np.asarray(logits_fn(x)).argmax(-1) != labels for x in (once, thrice)]
    assert np.all(fooled[1][fooled[0]])
    np.testing.assert_allclose(thrice[fooled[0]], once[fooled[0]], atol=1e-6)
    assert LENGTHS[norm](np.asarray(thrice) - images).max() <= epsilon + 1e-6
    assert thrice.min() >= 0 and thrice.max() <= 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("norm, epsilon", [("linf", 0.2), ("l2", 0.8)])
def test_it_fools_the_images_that_torchattacks_fools(norm, epsilon):
    torch, torchattacks = (pytest.importorskip(name) for name in ("torch", "torchattacks"))
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=shape).astype(np.float32) for shape in ((18, 12), (12, 4))]
    images = rng.uniform(size=(200, 3, 3, 2)).astype(np.float32)
    logits_fn = Partial(two_layers, weights)
    labels = np.asarray(logits_fn(images)).argmax(-1)

    first = (
        weights[0].reshape(3, 3, 2, 12).transpose(2, 0, 1, 3).reshape(18, 12)
    )  # PyTorch's order.
    linears = [torch.nn.Linear(*w.shape, bias=False) for w in weights]
    for layer, weight in zip(linears, (first, weights[1]), strict=True):
        layer.weight.data = torch.tensor(weight.T.copy())
    model = torch.nn.Sequential(torch.nn.Flatten(), linears[0], torch.nn.Tanh(), linears[1])
    names = {"linf": "Linf", "l2": "L2"}
    hyper = dict(norm=names[norm], eps=epsilon, steps=20, n_restarts=1, multi_targeted=False)
    nchw = torch.tensor(images).permute(0, 3, 1, 2).contiguous()
    classes = torch.tensor(labels)
    theirs = torchattacks.FAB(model, **hyper)(nchw, classes)
    expected = model(theirs).argmax(1).numpy() == labels
    hyper = dict(epsilon=epsilon, num_steps=20, num_restarts=1, norm=norm)
    adversarial = attacks.fab(logits_fn, images, labels, KEY, **hyper)
    right = np.asarray(logits_fn(adversarial)).argmax(-1) == labels
    assert 0.1 < right.mean() < 0.9
    assert np.mean(right != expected) <= 0.01
