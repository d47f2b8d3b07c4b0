"""Adversarial weight perturbation (AWP; Wu, Xia & Wang 2020), an attack on the weights.

AWP takes the gradient at perturbed weights instead of at theta. One ascent step on the loss moves
every kernel by gamma times its norm; the update subtracts that step again.
"""

import chex
import jax
import jax.numpy as jnp

from cat_jax.types import Array, PyTree


def perturbation(params: PyTree, gradient: PyTree, gamma: Array | float) -> PyTree:
    """gamma |w| g / |g| for each kernel w of two or more dimensions, otherwise zero.

    As in the published code, biases and the parameters of normalisation are not perturbed.

    Args:
      params: theta.
      gradient: gradient of the loss, with the shapes of `params`.
      gamma: size of the step, relative to the Euclidean norm of each kernel.
    """

    def move(weight: Array, g: Array) -> Array:
        if weight.ndim < 2:
            return jnp.zeros_like(weight)
        size = jnp.linalg.norm(g.ravel())
        # Because a zero gradient has no direction, such a kernel does not move.
        scale = gamma * jnp.linalg.norm(weight.ravel()) / jnp.where(size > 0, size, 1.0)
        return scale * g

    chex.assert_trees_all_equal_shapes(params, gradient)
    return jax.tree.map(move, params, gradient)
