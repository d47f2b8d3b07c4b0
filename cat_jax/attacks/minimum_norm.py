"""The nearest adversarial image of an attack that minimises its distance."""

from typing import NamedTuple, Self

import jax.numpy as jnp

from cat_jax import losses
from cat_jax.attacks.arguments import check_norm
from cat_jax.attacks.balls import BALLS
from cat_jax.types import Array, LogitsFn


def distances(
    logits_fn: LogitsFn, images: Array, labels: Array, adversarial: Array, *, norm: str = "linf"
) -> Array:
    """Returns how far each adversarial image is; infinite if it does not fool the classifier.

    Of the images of a minimum-norm attack, the accuracy at every radius:
    `(distances > epsilon).mean()`.

    Args:
      logits_fn: images -> logits [B, K].
      images: [B, H, W, C], the natural images.
      labels: [B], integer.
      adversarial: [B, H, W, C].
      norm: "linf", "l2" or "l1".

    Returns:
      [B]; 0 for an image that is misclassified from the start.
    """
    check_norm(norm)
    distance = BALLS[norm].length(jnp.asarray(adversarial) - images).reshape(-1)
    return jnp.where(losses.is_right(logits_fn(adversarial), labels), jnp.inf, distance)


class Nearest(NamedTuple):
    """The nearest misclassified image so far.

    Attributes:
      distance: [B, 1, 1, 1], infinite if there is none.
      images: [B, H, W, C], the natural images if there is none.
    """

    distance: Array
    images: Array

    @classmethod
    def nothing(cls, images: Array) -> Self:
        """Before the first point."""
        return cls(jnp.full((len(images), 1, 1, 1), jnp.inf, images.dtype), images)

    @property
    def exists(self) -> Array:
        """[B, 1, 1, 1]: is there an adversarial image?"""
        return jnp.isfinite(self.distance)

    def or_nearer(self, candidate: Array, distance: Array, fooled: Array) -> Self:
        """With `candidate` in place of what is further away, where it fools the classifier."""
        nearer = fooled & (distance < self.distance)
        return type(self)(
            jnp.where(nearer, distance, self.distance), jnp.where(nearer, candidate, self.images)
        )

    def within(self, epsilon: Array | float | None, images: Array) -> Array:
        """The images; the natural ones where the distance exceeds `epsilon`."""
        if epsilon is None:
            return self.images
        return jnp.where(self.distance <= epsilon, self.images, images)
