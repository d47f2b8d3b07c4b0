"""Projected gradient ascent on a classifier with a state, for training and `attacks.pgd`."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from cat_jax import losses, objectives
from cat_jax.attacks.arguments import PixelRange, warn_of_short_path
from cat_jax.attacks.balls import BALLS
from cat_jax.errors import UsageError
from cat_jax.types import Apply, Array, Attack, Loss, Views, per_image


def project(
    candidate: Array,
    images: Array,
    epsilon: Array | float,
    pixel_range: PixelRange,
    norm: str = "linf",
) -> Array:
    """Moves a point into the ball and the pixel range; in L2 not always to the nearest point."""
    candidate = BALLS[norm].project(candidate, images, epsilon, pixel_range)
    return candidate if pixel_range is None else jnp.clip(candidate, *pixel_range)


def pgd_with_state(
    apply: Apply,
    state: Any,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: Array | float,
    step_size: Array | float,
    num_steps: int,
    loss: Loss = objectives.adversarial_cross_entropy,
    random_start: bool | None = None,
    start: Array | None = None,
    pixel_range: PixelRange = (0.0, 1.0),
    tau: Array | int | None = None,
    norm: str = "linf",
) -> tuple[Array, Any]:
    """`pgd` on a classifier with a state, which each of the `num_steps` forward passes may change.

    It is not compiled. Call it inside `jit`, as a training step does.

    Args:
      apply: (state, images) -> (logits, state).
      state: pytree, such as parameters and running statistics of a classifier.
      images, labels, key: batch and keys; these and the other arguments are those of `pgd`, without
        checks.
      tau: number of extra steps as for `friendly_pgd`; None: every example makes all steps.

    Returns:
      Adversarial images, shaped as `images`, and the state after the attack.

    Raises:
      UsageError: if there is a start and `random_start` is True.
    """
    check_start(random_start, start)
    warn_of_short_path(epsilon, step_size, num_steps, norm)
    ball = BALLS[norm]

    def into_ball(candidate: Array) -> Array:
        return project(candidate, images, epsilon, pixel_range, norm)

    # XLA removes this forward pass if `loss` does not read it. Its state is dropped.
    natural_logits, _ = apply(state, images)

    def total_loss(candidate: Array, state: Any) -> tuple[Array, tuple[Array, Any]]:
        logits, state = apply(state, candidate)
        views = Views(natural=natural_logits, adversarial=logits)
        return jnp.sum(loss(views, labels)), (logits, state)

    def ascend(_: int, carry: tuple[Array, Any, Any]) -> tuple[Array, Any, Any]:
        candidate, left, state = carry
        gradient, (logits, state) = jax.grad(total_loss, has_aux=True)(candidate, state)
        moved = into_ball(candidate + ball.step(gradient, candidate, step_size, pixel_range))
        if tau is None:
            return moved, left, state
        wrong = ~losses.is_right(logits, labels)
        stopped = wrong & (left == 0)  # A stopped example never moves again.
        return jnp.where(per_image(stopped), candidate, moved), left - (wrong & ~stopped), state

    if start is None:
        noise = 0.0 if random_start is False else epsilon * ball.noise(key, images)
        start = into_ball(images + noise)
    if tau is not None and pixel_range is not None:  # Because an example may stay at its start.
        start = jnp.clip(start, *pixel_range)
    left = None if tau is None else jnp.full(len(labels), tau)
    adversarial, _, state = lax.fori_loop(0, num_steps, ascend, (start, left, state))
    return lax.stop_gradient(adversarial), state


def closing_forward(attack: Attack) -> Attack:
    """`attack`, and then a forward pass on its images that only updates running statistics.

    Published adversarial training runs the classifier in training mode on the last iterate.
    """

    def attack_and_forward(
        apply: Apply, state: Any, images: Array, labels: Array, key: Array, **kwargs: Any
    ) -> tuple[Array, Any]:
        adversarial, state = attack(apply, state, images, labels, key, **kwargs)
        _, state = apply(state, adversarial)
        return adversarial, state

    return attack_and_forward


def check_start(random_start: bool | None, start: Array | None) -> None:
    """Raises if there is a start and `random_start` is True."""
    if random_start and start is not None:
        raise UsageError(
            "random_start=True and a start are given; expected one of them: leave out random_start "
            "to begin at the start, or the start to begin at a random point."
        )
