"""DDN: a nearest adversarial image in the Euclidean norm, by decoupled direction and norm."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from cat_jax import losses
from cat_jax.attacks.arguments import (
    PixelRange,
    as_pixel_range,
    check_count,
    check_positive,
    check_share,
)
from cat_jax.attacks.balls import BALLS, finite, l2_norm
from cat_jax.attacks.entry import Entry
from cat_jax.attacks.fmn import LAST_STEP, cosine_decay
from cat_jax.attacks.minimum_norm import Nearest
from cat_jax.types import Array, LogitsFn, per_image


def ddn(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: Array | float | None = None,
    num_steps: int = 100,
    step_size: Array | float = 1.0,
    gamma: Array | float = 0.05,
    initial_norm: Array | float = 1.0,
    pixel_range: PixelRange = (0.0, 1.0),
) -> Array:
    r"""The attack by decoupled direction and norm (Rony et al. 2019), in the Euclidean norm.

    Each step moves the perturbation along the gradient of the cross-entropy, and then gives it the
    norm $\epsilon_t$, which shrinks by a share of gamma where the image is misclassified and grows
    by it where it is not:

    $$
    \delta_{t+1} = \epsilon_{t+1} \frac{\delta_t + \alpha_t g}{\|\delta_t + \alpha_t g\|},
    \quad \epsilon_{t+1} = (1 \mp \gamma) \, \epsilon_t
    $$

    with a gradient g of norm 1 and steps that decrease along a cosine. Images are not rounded to
    8 bits.

    Args:
      logits_fn, images, labels: as for `attacks.pgd`.
      key: one key, or one for each image, [B]: where the gradient is exactly zero, the step has a
        random direction.
      epsilon: return only images within this radius; None: at any distance.
      num_steps: number of gradient steps. Static.
      step_size: length of the first step, on the [0, 1] pixel scale; the last is a hundredth of it.
      gamma: by which share the norm changes at a step.
      initial_norm: the first norm.
      pixel_range: range that iterates are clipped to; None: never clipped, another threat model.

    Returns:
      Images, shaped as `images`: the nearest misclassified one. An image that is misclassified
      already, or that the attack never fools, is returned unchanged.

    Raises:
      UsageError: as `attacks.pgd`; for a step size or first norm of 0 or less and a gamma outside
        [0, 1].
    """
    check_count(num_steps=num_steps)
    check_positive(step_size=step_size, initial_norm=initial_norm)
    check_share(gamma=gamma)
    entry = Entry.of(logits_fn, images, labels)
    if entry.is_empty:
        return images
    hyper: dict[str, Any] = dict(num_steps=int(num_steps), step_size=step_size, gamma=gamma)
    hyper |= dict(initial_norm=initial_norm, pixel_range=as_pixel_range(pixel_range))
    hyper["epsilon"] = None if epsilon is None else entry.radius("epsilon", epsilon, "l2")
    return entry.result(_ddn(entry.logits_fn, entry.images, labels, key, **hyper))


@functools.partial(jax.jit, static_argnames=("num_steps", "pixel_range"))
def _ddn(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: Array | float | None,
    num_steps: int,
    step_size: Array | float,
    gamma: Array | float,
    initial_norm: Array | float,
    pixel_range: PixelRange,
) -> Array:

    def unit(move: Array) -> Array:
        return BALLS["l2"].step(move, images, 1.0, pixel_range)

    random = unit(BALLS["l2"].noise(key, images))

    def evaluate(candidate: Array) -> tuple[Array, Array]:
        logits = logits_fn(candidate)
        return jnp.sum(losses.cross_entropy(logits, labels)), ~losses.is_right(logits, labels)

    def visit(step: Array, carry: tuple[Array, Array, Nearest]) -> tuple[Array, Array, Nearest]:
        candidate, norm, nearest = carry
        gradient, fooled = jax.grad(evaluate, has_aux=True)(candidate)
        direction, fooled = unit(finite(gradient)), per_image(fooled)
        nearest = nearest.or_nearer(candidate, l2_norm(candidate - images), fooled)
        direction = jnp.where(l2_norm(direction) > 0, direction, random)
        share = LAST_STEP + (1 - LAST_STEP) * cosine_decay(step, num_steps)
        norm = norm * jnp.where(fooled, 1 - gamma, 1 + gamma)
        moved = images + norm * unit(candidate - images + step_size * share * direction)
        return moved if pixel_range is None else jnp.clip(moved, *pixel_range), norm, nearest

    # The last of num_steps + 1 points is only evaluated.
    norm = jnp.full((len(images), 1, 1, 1), initial_norm, images.dtype)
    carry = (images, norm, Nearest.nothing(images))
    nearest = lax.fori_loop(0, num_steps + 1, visit, carry)[-1]
    return lax.stop_gradient(nearest.within(epsilon, images))
