"""Friendly adversarial training's attack: PGD that stops soon after the classifier is fooled."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from cat_jax import objectives
from cat_jax.attacks.checks import check_batch, check_labels, check_radius
from cat_jax.attacks.pgd import PixelRange, as_pytree, call, project
from cat_jax.attacks.starts import uniform_noise
from cat_jax.types import Apply, Array, LogitsFn, Loss, Views, per_image


@functools.partial(
    jax.jit, static_argnames=("apply", "num_steps", "loss", "random_start", "pixel_range")
)
def friendly_pgd_with_state(
    apply: Apply,
    state: Any,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: Array | float,
    step_size: Array | float,
    num_steps: int,
    tau: Array | int,
    loss: Loss = objectives.adversarial_cross_entropy,
    random_start: bool = True,
    start: Array | None = None,
    pixel_range: PixelRange = (0.0, 1.0),
) -> tuple[Array, Any]:
    """`friendly_pgd` on a classifier with a state; arguments as for `pgd_with_state`."""
    natural_logits, _ = apply(state, images)

    def total_loss(candidate: Array, state: Any) -> tuple[Array, tuple[Array, Any]]:
        logits, state = apply(state, candidate)
        views = Views(natural=natural_logits, adversarial=logits)
        return jnp.sum(loss(views, labels)), (logits, state)

    def ascend(_: int, carry: tuple[Array, Array, Any]) -> tuple[Array, Array, Any]:
        candidate, left, state = carry
        gradient, (logits, state) = jax.grad(total_loss, has_aux=True)(candidate, state)
        wrong = jnp.argmax(logits, axis=-1) != labels
        stopped = wrong & (left == 0)  # And stays so: a stopped example does not move again.
        moved = project(candidate + step_size * jnp.sign(gradient), images, epsilon, pixel_range)
        candidate = jnp.where(per_image(stopped), candidate, moved)
        return candidate, left - (wrong & ~stopped), state

    if start is None:
        noise = epsilon * uniform_noise(key, images) if random_start else 0.0
        start = images + noise
    # An example may be left at its start, so that has to be an image.
    start = start if pixel_range is None else jnp.clip(start, *pixel_range)
    left = jnp.full(len(labels), tau)
    adversarial, _, state = lax.fori_loop(0, num_steps, ascend, (start, left, state))
    return lax.stop_gradient(adversarial), state


def friendly_pgd(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: Array | float,
    step_size: Array | float,
    num_steps: int,
    tau: Array | int = 0,
    **kwargs: Any,
) -> Array:
    """PGD that leaves each example `tau` steps after it is misclassified (Zhang et al. 2020).

    Before each step, an example that is classified wrong uses up one of its tau extra steps, and
    one that has none left stays where it is. So with tau = 0 an example that is wrong at its
    start is returned there, and one that is never wrong makes all steps. Fixed shapes: every
    example is computed at every step.

    Args:
      logits_fn, images, labels, key, epsilon, step_size: as for `pgd`.
      num_steps: at most so many. Static.
      tau: steps that are made beyond the first misclassification.
      **kwargs: loss, random_start, start and pixel_range, as for `pgd`; but the start is
        clipped to the pixel range.

    Returns:
      Adversarial images, shaped as `images`. No gradient flows through them.

    Raises:
      UsageError: as `pgd`.
    """
    check_batch(images, labels)
    check_radius(epsilon=epsilon, step_size=step_size)
    logits_fn = as_pytree(logits_fn)
    check_labels(logits_fn, images, labels)
    hyper = dict(epsilon=epsilon, step_size=step_size, num_steps=num_steps, tau=tau) | kwargs
    return friendly_pgd_with_state(call, logits_fn, images, labels, key, **hyper)[0]
