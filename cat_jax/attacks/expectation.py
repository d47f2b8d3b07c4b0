"""The mean of a random classifier, for attacks on defences that draw noise (EOT)."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from cat_jax.attacks.arguments import as_key, check_count
from cat_jax.errors import UsageError
from cat_jax.types import Array, LogitsFn


def expectation(
    logits_fn_with_key: Callable[[Array, Array], Array],
    num_samples: int,
    *,
    key: Array | None = None,
) -> LogitsFn:
    """Returns a classifier whose logits are the mean over draws of a random one (EOT).

        def noisy(variables, images, key):
            noise = 0.1 * jax.random.normal(key, images.shape)
            return module.apply(variables, images + noise)

        logits_fn = attacks.expectation(Partial(noisy, variables), 20)

    Attacks follow its gradient, which is the mean over the draws too (expectation over
    transformation, Athalye et al. 2018). The keys of an image derive from `key` and from its
    pixels: each iterate of an attack draws fresh noise, and the same image has the same logits in
    every batch.

    Args:
      logits_fn_with_key: (images [1, H, W, C], key) -> logits [1, K]. It gets one image at a time,
        under `vmap`. A `Partial` compiles once for all weights.
      num_samples: number of draws; AutoAttack takes 20. A forward or backward pass costs as many
        of the classifier, in the memory of one. Static.
      key: key of all draws; default `jax.random.key(0)`.

    Returns:
      A `LogitsFn`, a pytree. An attack keeps what fools the mean of its draws, so that a few
      images may be fooled by luck: classify them again with another `key` and more draws.

    Raises:
      UsageError: for less than one draw, a key that is none, and, at the call, for other logits
        than [1, K].
    """
    check_count(num_samples=num_samples)
    key = as_key(jax.random.key(0) if key is None else key)
    if key.shape:
        raise UsageError(f"key has the shape {list(key.shape)}; expected one key for all images.")
    if jax.tree_util.all_leaves([logits_fn_with_key]):
        logits_fn_with_key = Partial(logits_fn_with_key)  # A pytree, which `jit` takes.
    mean = _MeanOfDraws(int(num_samples), jax.random.key_impl(key))
    return Partial(mean, logits_fn_with_key, jax.random.key_data(key))


@dataclasses.dataclass(frozen=True)
class _MeanOfDraws:
    """(random classifier, key, images) -> mean logits; the key is raw, an array like others."""

    num_samples: int
    key_impl: Any

    def __call__(self, function: Callable[..., Array], key: Array, images: Array) -> Array:
        key = jax.random.wrap_key_data(key, impl=self.key_impl)
        keys = jax.vmap(functools.partial(jax.random.fold_in, key))(_digests(images))

        def draw_one(image: Array, key: Array) -> Array:
            logits = function(image[None], key)
            if logits.ndim != 2 or len(logits) != 1:
                raise UsageError(
                    f"logits_fn_with_key returns {list(logits.shape)} for one image; expected "
                    "logits [1, K]."
                )
            return logits[0].astype(jnp.promote_types(logits.dtype, jnp.float32))

        # Computed again in the backward pass, so that the draws are not all in memory at once.
        @functools.partial(jax.checkpoint, prevent_cse=False)
        def draw(sample: Array, images: Array, keys: Array) -> Array:
            return jax.vmap(draw_one)(images, jax.vmap(jax.random.fold_in, (0, None))(keys, sample))

        samples = jnp.arange(self.num_samples)
        return jnp.mean(lax.map(lambda sample: draw(sample, images, keys), samples), axis=0)


def _digests(images: Array) -> Array:
    """[B, H, W, C] -> uint32 [B]: a number of the bits of each image."""
    images = lax.stop_gradient(images)
    images = jnp.where(images == 0, 0.0, images)  # -0.0 is the same image.
    width = min(images.dtype.itemsize, 4)
    words = lax.bitcast_convert_type(images, {2: jnp.uint16, 4: jnp.uint32}[width])
    words = words.reshape(len(images), -1).astype(jnp.uint32)
    factors = jax.random.bits(jax.random.key(0), words.shape[1:], jnp.uint32) | 1
    return jnp.sum(words * factors[None], axis=-1, dtype=jnp.uint32)
