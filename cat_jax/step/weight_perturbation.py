"""Adversarial weight perturbation (AWP; Wu, Xia & Wang 2020): the weights are attacked too.

theta's gradient is taken at the worst nearby weights instead of at theta: the loss is climbed for
one step in which every kernel moves by gamma times its own norm, and after the update the move is
taken back.
"""

import chex
import jax
import jax.numpy as jnp

from cat_jax.types import Array, PyTree


def perturbation(params: PyTree, gradient: PyTree, gamma: Array | float) -> PyTree:
    """gamma |w| g / |g| for each kernel w, of two or more dimensions; zero for the rest.

    Biases, scales and shifts of normalisation stay, as in the published code.

    Args:
      params: theta.
      gradient: of the loss, shaped as `params`.
      gamma: size of the move, relative to each kernel's Euclidean norm.
    """

    def move(weight: Array, g: Array) -> Array:
        if weight.ndim < 2:
            return jnp.zeros_like(weight)
        size = jnp.linalg.norm(g.ravel())
        # A kernel without a gradient has no uphill: it stays.
        scale = gamma * jnp.linalg.norm(weight.ravel()) / jnp.where(size > 0, size, 1.0)
        return scale * g

    chex.assert_trees_all_equal_shapes(params, gradient)
    return jax.tree.map(move, params, gradient)
