"""GradAlign (Andriushchenko & Flammarion 2020): input gradients that agree within the ball.

A classifier whose gradient turns within the ball fools attacks of one step. The penalty on that
angle lets training with one step withstand attacks of many.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from cat_jax import losses, objectives
from cat_jax.attacks.balls import BALLS
from cat_jax.types import Apply, Array, Loss, Views


def misalignment(
    apply: Apply,
    state: Any,
    images: Array,
    labels: Any,
    keys: Array,
    *,
    epsilon: float,
    norm: str = "linf",
    loss: Loss = objectives.adversarial_cross_entropy,
) -> Array:
    r"""One minus the cosine between the input gradients at x and at a uniform point of the ball.

    $$
    1 - \cos(\nabla_x L(f(x), y), \nabla_x L(f(x + \eta), y)), \quad \eta \sim U(B(0, \epsilon))
    $$

    As in the published code, the gradient at x is a constant and x + eta may leave [0, 1].

    Args:
      apply: (state, images) -> (logits, state); changes of the state are dropped.
      state: pytree with the parameters, for which the penalty is differentiated.
      images: x, [B, H, W, C] in [0, 1].
      labels: y, as `loss` takes them.
      keys: one key for each image, [B].
      epsilon: radius of the ball, on the [0, 1] scale.
      norm: norm of the ball.
      loss: L.

    Returns:
      [B], from 0 to 2; 0 where a gradient is zero.
    """

    def total(points: Array) -> Array:
        return jnp.sum(loss(Views(adversarial=apply(state, points)[0]), labels))

    noise = epsilon * BALLS[norm].noise(keys, images)
    at_image, at_noise = (
        jax.grad(total)(points).reshape(len(images), -1) for points in (images, images + noise)
    )
    at_image = lax.stop_gradient(at_image)
    product = losses.euclidean_norm(at_image) * losses.euclidean_norm(at_noise)
    zero = product == 0
    cosine = jnp.sum(at_image * at_noise, axis=-1) / jnp.where(zero, 1.0, product)
    return jnp.where(zero, 0.0, 1 - cosine)
