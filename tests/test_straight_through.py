"""The values of a defence with the gradient of a stand-in; rounding and JPEG fall under PGD."""

import functools
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import robust_digits
from compilations import compiled_names
from jax.tree_util import Partial

from cat_jax import attacks, losses
from cat_jax.attacks import straight_through
from cat_jax.errors import UsageError

KEY = jax.random.key(0)
IMAGES = np.random.default_rng(0).uniform(size=(3, 8, 8, 1)).astype(np.float32)
FIRST, SECOND = np.random.default_rng(1).normal(size=(2, 64, 4)).astype(np.float32)
LABELS = np.arange(3)
PGD = functools.partial(attacks.pgd, epsilon=0.1, step_size=0.025, num_steps=10)


def rounded(images):
    return jnp.round(7 * images) / 7


@pytest.mark.slow
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jax.vmap], ids=["plain", "jit", "vmap"])
def test_values_of_the_function_and_gradient_of_the_stand_in(wrap):
    """The values to the last bit, however large those of the stand-in are."""
    identity = straight_through(rounded)
    sine = straight_through(rounded, lambda images: 1e4 * jnp.sin(images))
    for function, slope in ((identity, 1.0), (sine, 1e4 * np.cos(IMAGES))):
        np.testing.assert_array_equal(wrap(function)(IMAGES), wrap(rounded)(IMAGES))
        gradient = wrap(jax.grad(lambda x, f=function: jnp.sum(f(x))))(IMAGES)
        np.testing.assert_allclose(gradient, slope * np.ones_like(IMAGES), rtol=1e-6)
    assert not np.any(jax.grad(lambda x: jnp.sum(rounded(x)))(IMAGES))


def test_a_stand_in_that_is_not_finite_leaves_the_values_and_has_no_gradient():
    function = straight_through(rounded, lambda images: jnp.log(images - 0.5))
    np.testing.assert_array_equal(function(IMAGES), rounded(IMAGES))
    gradient = jax.grad(lambda x: jnp.sum(function(x)))(IMAGES)
    assert not np.any(gradient[IMAGES < 0.5]) and np.all(gradient[IMAGES > 0.5])


def test_a_stand_in_of_another_shape_is_refused():
    with pytest.raises(UsageError, match=r"\[3, 8, 8, 1\] and its stand-in \[3\]"):
        straight_through(rounded, lambda images: images.mean((1, 2, 3)))(IMAGES)


@pytest.mark.slow
def test_a_rounding_defence_falls():
    """PGD sees no gradient in the rounding, and every image of it through the identity."""
    images, labels = map(jnp.asarray, robust_digits.batch())
    weights = robust_digits.trained()

    def accuracy(front, epsilon=0.3):
        def seen(images):
            return robust_digits.network(weights, front(images))

        hyper = dict(epsilon=epsilon, step_size=epsilon / 4)
        adversarial = PGD(seen, images, labels, KEY, random_start=False, **hyper)
        return float(losses.is_right(seen(adversarial), labels).mean())

    assert accuracy(rounded) > 0.9
    assert accuracy(straight_through(rounded)) < 0.1


def compress(images):
    """JPEG of quality 50 and back, by Pillow."""
    from PIL import Image

    decoded = []
    for image in np.asarray(images):
        file = io.BytesIO()
        Image.fromarray(np.uint8(np.rint(255 * image[..., 0]))).save(file, "JPEG", quality=50)
        decoded.append(np.asarray(Image.open(file), images.dtype)[..., None] / 255)
    return np.stack(decoded)


def jpeg(images):
    return jax.pure_callback(compress, jax.ShapeDtypeStruct(images.shape, images.dtype), images)


def behind_jpeg(weights, images):
    return straight_through(jpeg)(images).reshape(len(images), -1) @ weights


@pytest.mark.slow
def test_a_callback_is_not_differentiated_and_compiles_once_for_all_weights():
    def right(weights, images):
        return losses.is_right(behind_jpeg(weights, images), LABELS)

    adversarial = PGD(Partial(behind_jpeg, FIRST), IMAGES, LABELS, KEY)
    with compiled_names() as names:
        PGD(Partial(behind_jpeg, SECOND), IMAGES, LABELS, KEY)
    assert not names, names
    np.testing.assert_array_equal(straight_through(jpeg)(IMAGES), compress(IMAGES))
    assert np.abs(adversarial - IMAGES).max() <= 0.1 + 1e-6 and not right(FIRST, adversarial).all()
