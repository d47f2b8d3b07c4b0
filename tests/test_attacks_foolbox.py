"""PGD against an independent implementation, foolbox's on its JAX back end."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.tree_util import Partial

from cat_jax import attacks, losses

EPSILON, STEP_SIZE, NUM_STEPS = 0.05, 0.0125, 10


def blobs(seed, num_examples=256):
    """Images [N, 8, 8, 1] of ten classes: a fixed pattern each, under noise."""
    r = np.random.RandomState(seed)
    labels = r.randint(0, 10, num_examples)
    patterns = np.random.RandomState(0).uniform(0.3, 0.7, (10, 8, 8, 1))
    images = np.clip(patterns[labels] + 0.15 * r.normal(size=(num_examples, 8, 8, 1)), 0, 1)
    return jnp.asarray(images, jnp.float32), jnp.asarray(labels)


def two_layers(weights, images):
    hidden = jnp.tanh(images.reshape(len(images), -1) @ weights[0])
    return hidden @ weights[1]


@pytest.fixture(scope="module")
def logits_fn():
    """A small network, trained for long enough to be right, and not to be robust."""
    images, labels = blobs(1)
    tx = optax.adam(1e-2)

    def mean_loss(weights):
        return losses.cross_entropy(two_layers(weights, images), labels).mean()

    def step(carry, _):
        weights, opt_state = carry
        updates, opt_state = tx.update(jax.grad(mean_loss)(weights), opt_state)
        return (optax.apply_updates(weights, updates), opt_state), None

    r = np.random.RandomState(3)
    weights = [jnp.asarray(r.normal(size=s) / 8, jnp.float32) for s in ((64, 64), (64, 10))]
    train = jax.jit(lambda carry: jax.lax.scan(step, carry, length=60)[0])
    return Partial(two_layers, train((weights, tx.init(weights)))[0])


def foolbox_pgd(logits_fn, images, labels):
    with warnings.catch_warnings():
        # foolbox 3.3.4 imports from a namespace that new SciPy deprecates.
        warnings.filterwarnings("ignore", "Please import `gaussian_filter`", DeprecationWarning)
        import foolbox
    model = foolbox.models.JAXModel(logits_fn, bounds=(0, 1))
    attack = foolbox.attacks.LinfPGD(
        abs_stepsize=STEP_SIZE, steps=NUM_STEPS, random_start=False, rel_stepsize=None
    )
    return attack(model, images, labels, epsilons=EPSILON)[1]


@pytest.mark.slow
def test_robust_accuracy_agrees_with_foolbox(logits_fn):
    images, labels = blobs(2)
    hyper = dict(epsilon=EPSILON, step_size=STEP_SIZE, num_steps=NUM_STEPS, random_start=False)
    ours = attacks.pgd(logits_fn, images, labels, jax.random.key(0), **hyper)
    theirs = foolbox_pgd(logits_fn, images, labels)
    natural, robust, other = (
        int((logits_fn(x).argmax(-1) == labels).sum()) for x in (images, ours, theirs)
    )
    assert 26 < robust < natural - 26, "the attack must matter, and leave something"
    assert abs(robust - other) <= 1
    assert np.mean(np.abs(ours - theirs) <= 1e-5) >= 0.99
