"""Half-precision images: attacks compute in float32 and round towards the natural image."""

import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from cat_jax.attacks.programs import Frozen
from cat_jax.types import Array, LogitsFn

HALF = ("float16", "bfloat16")


def is_half(images: Array) -> bool:
    """Whether `images` have less precision than an attack needs."""
    return str(images.dtype) in HALF


def inwards(candidate: Array, images: Array) -> Array:
    """Rounds `candidate` to the dtype of `images`, so that no entry moves away from them."""
    rounded = candidate.astype(images.dtype)
    wide = images.astype(candidate.dtype)
    further = jnp.abs(rounded.astype(candidate.dtype) - wide) > jnp.abs(candidate - wide)
    return jnp.where(further, jnp.nextafter(rounded, images), rounded)


def on_rounded(logits_fn: LogitsFn, images: Array) -> Partial:
    """`logits_fn` of float32 candidates, which it rounds like the result of the attack.

    So the attack evaluates the images that it returns. The gradient is that of the rounded point.
    """
    return Partial(_OnRounded(), logits_fn, images)


class _OnRounded(Frozen):
    def __call__(self, logits_fn: LogitsFn, images: Array, candidate: Array) -> Array:
        point = lax.stop_gradient(candidate)  # Because old JAX cannot differentiate nextafter.
        rounded = inwards(point, images).astype(candidate.dtype)
        through = candidate + (rounded - point)
        return logits_fn(through.astype(images.dtype))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OnRounded)

    def __hash__(self) -> int:
        return hash(_OnRounded)
