"""Projected gradient ascent in the union of several balls, as training runs it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from cat_jax import objectives
from cat_jax.attacks.arguments import PixelRange, check_norm
from cat_jax.attacks.ascent import check_start, project
from cat_jax.attacks.balls import BALLS
from cat_jax.attacks.starts import per_example_keys
from cat_jax.errors import UsageError, check_choice
from cat_jax.types import Apply, Array, Loss, Views, per_image

COMBINE = ("worst", "average")


class NormBall(NamedTuple):
    """A ball around each image, and the steps of the attack in it.

    Attributes:
      norm: "linf", "l2" or "l1".
      epsilon: radius of the ball, on the [0, 1] pixel scale.
      step_size: length of a step in that norm.
    """

    norm: str
    epsilon: float
    step_size: float


def union_with_state(
    apply: Apply,
    state: Any,
    images: Array,
    labels: Array,
    key: Array,
    *,
    balls: Sequence[NormBall],
    num_steps: int,
    combine: str = "worst",
    loss: Loss = objectives.adversarial_cross_entropy,
    random_start: bool | None = None,
    start: Array | None = None,
    pixel_range: PixelRange = (0.0, 1.0),
) -> tuple[Array, Any]:
    """PGD in several balls, for training on the worst of them or on their average.

    Both need one gradient for each step. Each ball has its own step from the iterate and its own
    projection. "worst" is MSD (Maini et al. 2020): for each example, the iterate moves to the point
    with the largest loss, which needs one more forward pass for each ball and step. "average"
    draws one ball for each example, so that the expected loss is the mean over the balls.

    Args:
      apply, state, images, labels, key: as for `pgd_with_state`.
      balls: norms, radii and step sizes.
      num_steps: number of steps. Static.
      combine: "worst" or "average". Static.
      loss, pixel_range: as for `pgd_with_state`.
      random_start: whether to begin at a uniform point of the first ball, or with "average" of the
        ball of the example; the default without a `start`.
      start: first iterate, used unchanged.

    Returns:
      Adversarial images, each in one of the balls, and the state after the attack.

    Raises:
      UsageError: if there are no balls, for an unknown norm or `combine`, and for a start that is
        both given and random.
    """
    check_choice("combine", combine, COMBINE)
    check_start(random_start, start)
    if not balls:
        raise UsageError("union_with_state got no balls; expected at least one NormBall.")
    for ball in balls:
        check_norm(ball.norm)
    num_images = len(images)
    keys = jax.vmap(jax.random.split)(per_example_keys(key, num_images))
    drawn = jax.vmap(lambda k: jax.random.randint(k, (), 0, len(balls)))(keys[:, 0])
    if combine == "worst":
        drawn = jnp.zeros(num_images, jnp.int32)
    natural_logits, _ = apply(state, images)

    def into(ball: NormBall, candidate: Array) -> Array:
        return project(candidate, images, ball.epsilon, pixel_range, ball.norm)

    def step(ball: NormBall, gradient: Array, candidate: Array) -> Array:
        return BALLS[ball.norm].step(gradient, candidate, ball.step_size, pixel_range)

    def total_loss(candidate: Array, state: Any) -> tuple[Array, tuple[Array, Any]]:
        logits, state = apply(state, candidate)
        values = loss(Views(natural=natural_logits, adversarial=logits), labels)
        return jnp.sum(values), (values, state)

    def ascend(_: int, carry: tuple[Array, Any]) -> tuple[Array, Any]:
        candidate, state = carry
        gradient, (_, state) = jax.grad(total_loss, has_aux=True)(candidate, state)
        points = [into(ball, candidate + step(ball, gradient, candidate)) for ball in balls]
        if combine == "average" or len(balls) == 1:
            return _choose(points, drawn), state
        values = jnp.stack([total_loss(point, state)[1][0] for point in points])
        # A loss that is NaN is never the largest.
        return _choose(points, jnp.argmax(jnp.where(jnp.isnan(values), -jnp.inf, values), 0)), state

    if start is None:
        start = images
        if random_start is not False:
            noise = [ball.epsilon * BALLS[ball.norm].noise(keys[:, 1], images) for ball in balls]
            points = [into(ball, images + n) for ball, n in zip(balls, noise, strict=True)]
            start = _choose(points, drawn)
    adversarial, state = lax.fori_loop(0, num_steps, ascend, (start, state))
    return lax.stop_gradient(adversarial), state


def _choose(points: Sequence[Array], index: Array) -> Array:
    """For each example the point of its index, [B]."""
    chosen = points[0]
    for number, point in enumerate(points[1:], 1):
        chosen = jnp.where(per_image(index == number), point, chosen)
    return chosen
