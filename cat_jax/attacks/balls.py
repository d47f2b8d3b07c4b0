"""The two balls that PGD climbs in: which way is steepest, what is nearest, what is uniform."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cat_jax.attacks.starts import per_example_keys, uniform_noise
from cat_jax.types import Array, per_image


class Ball(NamedTuple):
    """A norm's ball around each image, [B, H, W, C].

    Attributes:
      steepest: gradient -> the step of norm 1 along which the loss grows fastest; entries where
        the gradient is not finite do not move.
      project: (candidate, images, epsilon) -> the nearest point within epsilon of images.
      noise: (key, images) -> a uniform draw from the ball of radius 1, each example's from its
        own key.
    """

    steepest: Callable[[Array], Array]
    project: Callable[[Array, Array, Array | float], Array]
    noise: Callable[[Array, Array], Array]


def l2_norm(images: Array) -> Array:
    """[B, H, W, C] -> [B, 1, 1, 1]: the Euclidean norm of each image."""
    return jnp.sqrt(jnp.sum(jnp.square(images), axis=(1, 2, 3), keepdims=True))


def finite(gradient: Array) -> Array:
    """`gradient`, with zero for its NaN and infinite entries: they name no direction."""
    return jnp.where(jnp.isfinite(gradient), gradient, 0.0)


def _sign(gradient: Array) -> Array:
    return jnp.sign(finite(gradient))


def _clip(candidate: Array, images: Array, epsilon: Array | float) -> Array:
    return jnp.clip(candidate, images - epsilon, images + epsilon)


def _unit(gradient: Array) -> Array:
    """Zero where the gradient is. Divides by the largest first: squares of tiny entries vanish."""
    gradient = finite(gradient)
    largest = jnp.max(jnp.abs(gradient), axis=(1, 2, 3), keepdims=True)
    scaled = gradient / jnp.where(largest > 0, largest, 1.0)
    return scaled / jnp.maximum(l2_norm(scaled), 1.0)  # The norm is at least 1, or 0.


def _shorten(candidate: Array, images: Array, epsilon: Array | float) -> Array:
    delta = candidate - images
    length = l2_norm(delta)
    return images + delta * jnp.minimum(1.0, epsilon / jnp.where(length > 0, length, 1.0))


def _l2_noise(key: Array, images: Array) -> Array:
    """A normal draw has a uniform direction; U^(1/n) is the radius of a uniform point."""
    shape, dtype = images.shape[1:], images.dtype
    pairs = jax.vmap(jax.random.split)(per_example_keys(key, len(images)))
    direction = _unit(jax.vmap(lambda k: jax.random.normal(k, shape, dtype))(pairs[:, 0]))
    share = jax.vmap(lambda k: jax.random.uniform(k, (), dtype))(pairs[:, 1])
    return direction * per_image(share ** (1 / images[0].size))


BALLS = {
    "linf": Ball(_sign, _clip, uniform_noise),
    "l2": Ball(_unit, _shorten, _l2_noise),
}
