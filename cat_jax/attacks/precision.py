"""Half-precision images: computed in float32, and rounded towards the natural image at the end."""

import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from cat_jax.attacks.programs import Frozen
from cat_jax.types import Array, LogitsFn

HALF = ("float16", "bfloat16")


def is_half(images: Array) -> bool:
    """Have `images` fewer digits than an attack needs?"""
    return str(images.dtype) in HALF


def inwards(candidate: Array, images: Array) -> Array:
    """`candidate` in the dtype of `images`, no entry further from them than before."""
    rounded = candidate.astype(images.dtype)
    wide = images.astype(candidate.dtype)
    further = jnp.abs(rounded.astype(candidate.dtype) - wide) > jnp.abs(candidate - wide)
    return jnp.where(further, jnp.nextafter(rounded, images), rounded)


def on_rounded(logits_fn: LogitsFn, images: Array) -> Partial:
    """`logits_fn` of candidates in float32, each rounded as the attack's result will be.

    So what an attack sees is what it returns. The gradient is that at the rounded point.
    """
    return Partial(_OnRounded(), logits_fn, images)


class _OnRounded(Frozen):
    def __call__(self, logits_fn: LogitsFn, images: Array, candidate: Array) -> Array:
        point = lax.stop_gradient(candidate)  # older versions of JAX cannot differentiate nextafter
        rounded = inwards(point, images).astype(candidate.dtype)
        through = candidate + (rounded - point)
        return logits_fn(through.astype(images.dtype))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OnRounded)

    def __hash__(self) -> int:
        return hash(_OnRounded)
