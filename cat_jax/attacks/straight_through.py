"""The backward pass of another function, for defences whose own gradient is zero or missing."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax

from cat_jax.errors import UsageError
from cat_jax.types import Array

ImageFn = Callable[[Array], Array]


def _identity(images: Array) -> Array:
    return images


def straight_through(function: ImageFn, stand_in: ImageFn = _identity) -> ImageFn:
    """Returns a function with the values of `function` and the gradient of `stand_in`.

        rounded = attacks.straight_through(lambda images: jnp.round(7 * images) / 7)
        logits_fn = lambda images: model(rounded(images))

    So gradient attacks see past a defence that rounds, compresses or draws in steps (BPDA, Athalye
    et al. 2018). What an attack returns is judged on the true values of `function`.

    Args:
      function: the defence, images -> images, or logits. JAX never differentiates it, so that it
        may call NumPy or Pillow by `jax.pure_callback`.
      stand_in: a differentiable function that is close to it, of the same shapes; the identity by
        default. Where its value is not finite, its gradient is zero.

    Returns:
      A function of one array. It works inside `jit`, `grad` and, where `function` does, `vmap`.

    Raises:
      UsageError: when it is called, if `stand_in` returns another shape than `function`.
    """

    def through(images: Array) -> Array:
        values, smooth = function(lax.stop_gradient(images)), stand_in(images)
        values = jnp.asarray(values)
        if values.shape != smooth.shape:
            raise UsageError(
                f"straight_through: the function returns {list(values.shape)} and its stand-in "
                f"{list(smooth.shape)}; expected the same shape from both."
            )
        # Exactly zero, so that the sum has the values of the function to the last bit.
        nothing = jnp.where(jnp.isfinite(smooth), smooth - lax.stop_gradient(smooth), 0.0)
        return lax.stop_gradient(values) + nothing.astype(values.dtype)

    return through
