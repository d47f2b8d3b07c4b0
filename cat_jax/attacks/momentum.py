"""Attacks whose images transfer to other classifiers: MI-FGSM, input diversity, mean of logits."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.tree_util import Partial

from cat_jax import objectives
from cat_jax.attacks.arguments import (
    PixelRange,
    as_pixel_range,
    check_count,
    check_norm,
    check_share,
    is_concrete,
    warn_of_short_path,
)
from cat_jax.attacks.ascent import project
from cat_jax.attacks.balls import BALLS, finite
from cat_jax.attacks.callables import as_loss
from cat_jax.attacks.entry import Entry
from cat_jax.attacks.starts import per_example_keys
from cat_jax.errors import UsageError
from cat_jax.types import Array, LogitsFn, Loss, Views


def mi_fgsm(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: Array | float,
    num_steps: int = 10,
    step_size: Array | float | None = None,
    momentum: Array | float = 1.0,
    diversity: float = 0.0,
    resize: float = 0.9,
    loss: Loss = objectives.adversarial_cross_entropy,
    pixel_range: PixelRange = (0.0, 1.0),
    norm: str = "linf",
) -> Array:
    r"""PGD with momentum (MI-FGSM, Dong et al. 2018), whose images transfer better than PGD's.

    It starts at `images`. The velocity sums gradients of L1 norm 1:

    $$
    g^{t+1} = \mu g^t + \frac{\nabla_x L(f(x^t), y)}{\|\nabla_x L(f(x^t), y)\|_1}, \quad
    x^{t+1} = \Pi_{B(x,\epsilon)}(x^t + \alpha\, sgn(g^{t+1}))
    $$

    With input diversity (Xie et al. 2019), the gradient is that of a randomly resized and padded
    copy of x^t, drawn for each image and step.

    Args:
      logits_fn, images, labels, epsilon, loss, pixel_range: as for `pgd`. For several classifiers,
        `mean_logits` gives the `logits_fn`.
      key: one key, or one for each image, [B]; unused without diversity.
      num_steps: T. Static.
      step_size: alpha; None: epsilon / num_steps, as published.
      momentum: mu; 0: none, the basic iterative method.
      diversity: probability that a gradient is that of a resized copy; in [0, 1]. Static.
      resize: size of the smallest copy, as a share of the image's; in (0, 1]. Static.
      norm: "linf", "l2" or "l1", as for `pgd`: the step is then along the velocity. Static.

    Returns:
      Adversarial images, shaped as `images`: the last iterate. No gradient flows through them.

    Raises:
      UsageError: as `pgd`, and for a negative momentum, a diversity or a share out of range.

    Warns:
      UserWarning: if `num_steps` of `step_size` cannot reach the edge of the ball.
    """
    check_norm(norm)
    check_count(num_steps=num_steps)
    check_share(diversity=diversity, resize=resize)
    if is_concrete(momentum) and not np.all(np.asarray(momentum) >= 0):
        raise UsageError(f"momentum={momentum}; expected a number from 0.")
    if not resize:
        raise UsageError("resize=0; expected above 0: the share of an image that a copy keeps.")
    entry = Entry.of(logits_fn, images, labels)
    if entry.is_empty:
        return images
    radius = entry.radius("epsilon", epsilon, norm)
    step = radius / num_steps if step_size is None else entry.radius("step_size", step_size, norm)
    warn_of_short_path(epsilon, step, num_steps, norm)
    hyper: dict[str, Any] = dict(num_steps=int(num_steps), resize=float(resize), norm=norm)
    hyper |= dict(epsilon=radius, step_size=step, momentum=momentum, diversity=float(diversity))
    hyper["pixel_range"] = as_pixel_range(pixel_range)
    loss = as_loss(loss, entry.num_classes, entry.images, labels)
    return entry.result(_climb(entry.logits_fn, loss, entry.images, labels, key, **hyper))


@functools.partial(
    jax.jit, static_argnames=("num_steps", "diversity", "resize", "pixel_range", "norm")
)
def _climb(
    logits_fn: LogitsFn,
    loss: Loss,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: Array | float,
    step_size: Array | float,
    num_steps: int,
    momentum: Array | float,
    diversity: float,
    resize: float,
    pixel_range: PixelRange,
    norm: str,
) -> Array:
    keys = per_example_keys(key, len(images))
    natural_logits = logits_fn(images)

    def total_loss(candidate: Array, step: Array) -> Array:
        if diversity:
            fresh = jax.vmap(functools.partial(jax.random.fold_in, data=step))(keys)
            candidate = resize_and_pad(candidate, fresh, probability=diversity, smallest=resize)
        views = Views(natural=natural_logits, adversarial=logits_fn(candidate))
        return jnp.sum(loss(views, labels))

    def ascend(step: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        candidate, velocity = carry
        gradient = finite(jax.grad(total_loss)(candidate, step))
        size = jnp.sum(jnp.abs(gradient), axis=(1, 2, 3), keepdims=True)
        velocity = momentum * velocity + gradient / jnp.where(size > 0, size, 1.0)
        moved = candidate + BALLS[norm].step(velocity, candidate, step_size, pixel_range)
        return project(moved, images, epsilon, pixel_range, norm), velocity

    adversarial, _ = lax.fori_loop(0, num_steps, ascend, (images, jnp.zeros_like(images)))
    return lax.stop_gradient(adversarial)


def resize_and_pad(images: Array, keys: Array, *, probability: float, smallest: float) -> Array:
    """Input diversity: each image scaled down by a random factor, at a random place, on zeros.

    Args:
      images: [B, H, W, C].
      keys: [B], one for each image.
      probability: of a copy; other images are unchanged.
      smallest: size of the smallest copy, as a share of the image's. Sizes are rounded to pixels.

    Returns:
      Images, shaped as `images`, interpolated linearly.
    """
    height, width = images.shape[1:3]
    least = int(height * smallest)

    def diverse(image: Array, key: Array) -> Array:
        of_size, of_place, of_choice = jax.random.split(key, 3)
        scale = jax.random.randint(of_size, (), least, height + 1) / height
        scale = scale.astype(image.dtype)
        free = (1 - scale) * jnp.array([height, width], image.dtype)
        place = jnp.floor(jax.random.uniform(of_place, (2,), image.dtype) * (free + 1))
        copy = jax.image.scale_and_translate(
            image,
            image.shape,
            (0, 1),
            jnp.stack([scale, scale]),
            jnp.minimum(place, free),
            "linear",
            antialias=False,
        )
        is_copy = jax.random.uniform(of_choice, (), image.dtype) < probability
        return jnp.where(is_copy, copy, image)

    return jax.vmap(diverse)(images, keys)


def mean_logits(*logits_fns: LogitsFn) -> LogitsFn:
    """The classifier whose logits are the mean of those of several, to attack them all at once.

    Args:
      *logits_fns: classifiers with the same classes. If all are `Partial`s, so is the result.

    Raises:
      UsageError: without a classifier.
    """
    if not logits_fns:
        raise UsageError("mean_logits() got no classifiers; expected at least one.")
    if all(isinstance(logits_fn, Partial) for logits_fn in logits_fns):
        return Partial(_mean, logits_fns)
    return lambda images: _mean(logits_fns, images)  # Each call of an attack traces it again.


def _mean(logits_fns: tuple[LogitsFn, ...], images: Array) -> Array:
    return jnp.mean(jnp.stack([logits_fn(images) for logits_fn in logits_fns]), axis=0)
