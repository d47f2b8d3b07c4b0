"""Checks the arguments of public attacks, and returns images of the caller's dtype."""

import dataclasses
from typing import Any, Self

import jax.numpy as jnp

from cat_jax.attacks import precision
from cat_jax.attacks.arguments import as_radius, check_batch, check_labels
from cat_jax.attacks.callables import as_logits_fn
from cat_jax.types import Array, LogitsFn


@dataclasses.dataclass(frozen=True)
class Entry:
    """A checked batch in the form that attacks compute with.

    Attributes:
      given: images of the caller.
      logits_fn: classifier as a pytree, for images of at least float32.
      images: `given`, in float32 if it has half precision.
      labels: integers [B].
      num_classes: number of classes K.
    """

    given: Array
    logits_fn: LogitsFn
    images: Array
    labels: Array
    num_classes: int

    @classmethod
    def of(cls, logits_fn: LogitsFn, images: Array, labels: Array) -> Self:
        """Checks the arguments that all attacks share.

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
        labels = jnp.asarray(labels)  # A tracer inside a caller's `jit` passes all checks.
        if not precision.is_half(images):
            return cls(images, pytree, images, labels, num_classes)
        rounded = precision.on_rounded(pytree, images)
        return cls(images, rounded, images.astype(jnp.float32), labels, num_classes)

    @property
    def is_empty(self) -> bool:
        """Whether there are no images, so that attacks must not trace the classifier."""
        return not len(self.given)

    def radius(self, name: str, value: Any, norm: str = "linf") -> Array | float:
        """`as_radius` for these images."""
        return as_radius(name, value, self.images, norm)

    def result(self, adversarial: Array) -> Array:
        """The result of the attack in the dtype of the caller's images."""
        if not precision.is_half(self.given):
            return adversarial
        return precision.inwards(adversarial, self.given)
