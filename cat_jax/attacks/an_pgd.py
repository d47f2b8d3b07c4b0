"""Max-margin training's attack: the nearest point that PGD's direction leads to beyond the margin.

The adaptive-norm PGD of Ding et al. (2019): each example has a radius of its own.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from cat_jax import losses, objectives
from cat_jax.attacks.pgd import PixelRange, pgd_with_state
from cat_jax.types import Apply, Array, per_image

BEYOND = (
    1.05  # The search goes so many times max_epsilon far: what lies there is left out of the loss.
)
REACH = 2.5  # All steps together, in radii.


@functools.partial(
    jax.jit, static_argnames=("apply", "num_steps", "num_search_steps", "pixel_range")
)
def an_pgd_with_state(
    apply: Apply,
    state: Any,
    images: Array,
    labels: Array,
    key: Array,
    *,
    margins: Array,
    min_epsilon: Array | float,
    max_epsilon: Array | float,
    num_steps: int,
    num_search_steps: int = 10,
    pixel_range: PixelRange = (0.0, 1.0),
) -> tuple[Array, Any]:
    """Points near the decision boundary: PGD for a direction, bisection for how far to go.

    PGD with a random start runs on the soft logit margin within each example's last known
    margin. The boundary is then sought along x + t (x' - x) / epsilon, t up to 1.05 max_epsilon.

    Args:
      apply, state: as for `pgd_with_state`; without gradients the state stays as it is in the
        bisection.
      images: [B, H, W, C] in [0, 1].
      labels: [B].
      key: one key, or one for each example.
      margins: [B], the max-norm distances found when the examples were last attacked.
      min_epsilon: least radius of PGD.
      max_epsilon: d_max, the margin that training asks for.
      num_steps: of PGD. Static.
      num_search_steps: of the bisection. Static.
      pixel_range: what points are clipped to. (The published code clips in the search, but
        not what it returns.)

    Returns:
      Images, and the state. Examples that are wrong from the start are returned unchanged.
    """
    epsilon = jnp.maximum(margins, min_epsilon)

    def margin_of(candidate: Array) -> Array:
        logits, _ = apply(state, candidate)
        return losses.soft_logit_margin(logits, labels)

    correct = margin_of(images) < 0
    found, state = pgd_with_state(
        apply,
        state,
        images,
        labels,
        key,
        epsilon=per_image(epsilon),
        step_size=per_image(REACH * epsilon / num_steps),
        num_steps=num_steps,
        loss=objectives.adversarial_soft_logit_margin,
        pixel_range=pixel_range,
    )
    direction = (found - images) / per_image(epsilon)

    def point(distance: Array) -> Array:
        candidate = images + per_image(distance) * direction
        return candidate if pixel_range is None else jnp.clip(candidate, *pixel_range)

    def halve(_: int, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        distance, low, high = carry
        inside = margin_of(point(distance)) < 0
        low, high = jnp.where(inside, distance, low), jnp.where(inside, high, distance)
        return (low + high) / 2, low, high

    far = jnp.full_like(epsilon, BEYOND * max_epsilon)
    begin = (jnp.minimum(epsilon, far), jnp.zeros_like(epsilon), far)
    distance, _, _ = lax.fori_loop(0, num_search_steps, halve, begin)
    found = jnp.where(per_image(correct), point(distance), images)
    return lax.stop_gradient(found), state
