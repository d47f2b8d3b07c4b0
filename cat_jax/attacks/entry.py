"""Where public attacks begin and end: checked arguments in, images of the caller's dtype out."""

import dataclasses
from typing import Any, Self

import jax.numpy as jnp

from cat_jax.attacks import precision
from cat_jax.attacks.arguments import as_radius, check_batch, check_labels
from cat_jax.attacks.callables import as_logits_fn
from cat_jax.types import Array, LogitsFn


@dataclasses.dataclass(frozen=True)
class Entry:
    """A batch as an attack takes it.

    Attributes:
      given: images, as the caller gave them.
      logits_fn: the classifier as a pytree; of images of at least float32.
      images: `given` in float32, if it is of half precision.
      labels: [B].
      num_classes: K.
    """

    given: Array
    logits_fn: LogitsFn
    images: Array
    labels: Array
    num_classes: int

    @classmethod
    def of(cls, logits_fn: LogitsFn, images: Array, labels: Array) -> Self:
        """Checks what every attack is given.

        Raises:
          UsageError: for images that are not floats [B, H, W, C] in [0, 1], labels that are not
            classes, and a classifier that is not in inference mode or does not return logits.
        """
        check_batch(images, labels)
        if not len(images):
            return cls(images, logits_fn, images, labels, 0)
        images = jnp.asarray(images)
        pytree, num_classes = as_logits_fn(logits_fn, images)
        check_labels(labels, num_classes)
        labels = jnp.asarray(labels)  # Inside a caller's `jit` a tracer, which passes all checks.
        if not precision.is_half(images):
            return cls(images, pytree, images, labels, num_classes)
        rounded = precision.on_rounded(pytree, images)
        return cls(images, rounded, images.astype(jnp.float32), labels, num_classes)

    @property
    def is_empty(self) -> bool:
        """Are there no images? Then there is nothing to trace either."""
        return not len(self.given)

    def radius(self, name: str, value: Any, norm: str = "linf") -> Array | float:
        """`as_radius` for these images."""
        return as_radius(name, value, self.images, norm)

    def result(self, adversarial: Array) -> Array:
        """What the attack found, in the dtype of the images that were given."""
        if not precision.is_half(self.given):
            return adversarial
        return precision.inwards(adversarial, self.given)
