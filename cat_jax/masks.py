"""Where the mask network lets the perturbation through: on the digit, or around it."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from cat_jax.data import Split, padded_batches, to_unit
from cat_jax.state import TrainState
from cat_jax.train_step import forward
from cat_jax.types import Array, Attack

INK = 0.5  # A pixel this bright belongs to the digit: digits are white on black.


class MaskMeans(NamedTuple):
    """Means of M over the pixels of a kind."""

    digit: float
    background: float


def mask_means(
    classifier: nn.Module,
    mask_net: nn.Module,
    attack: Attack,
    state: TrainState,
    split: Split,
    *,
    seed: int,
    batch_size: int,
) -> MaskMeans:
    """Means of M = g(x, delta) over digit pixels and over background, delta of `attack`.

    Both networks are in inference mode. The paper says of its MNIST masks that they are high on
    the background and low on the digit.

    Args:
      classifier, mask_net: f and g.
      attack: the training attack.
      state: their parameters.
      split: single-channel images.
      seed: of the attack's noise, which belongs to the example.
      batch_size: of the computation.
    """
    f, g = (functools.partial(forward, net, train=False) for net in (classifier, mask_net))
    key = jax.random.key(seed)

    @jax.jit
    def sums(state: TrainState, images: Array, labels: Array, indices: Array) -> Array:
        """[B, 2, 2]: of each image, the sum of M and the count, on the digit and around it."""
        natural = to_unit(images)
        keys = jax.vmap(functools.partial(jax.random.fold_in, key))(indices)
        adversarial, _ = attack(f, state.classifier, natural, labels, keys)
        mask, _ = g(state.mask_net, natural, adversarial - natural)
        ink = (natural >= INK).astype(mask.dtype)
        axes = (1, 2, 3)
        kinds = [(jnp.sum(mask * kind, axes), jnp.sum(kind, axes)) for kind in (ink, 1 - ink)]
        return jnp.stack([jnp.stack(kind, -1) for kind in kinds], 1)

    total = jnp.zeros((2, 2))
    for indices, count in padded_batches(len(split.labels), batch_size):
        each = sums(state, split.images[indices], split.labels[indices], indices)
        total += jnp.sum(each[:count], axis=0)
    digit, background = (float(part) for part in total[:, 0] / total[:, 1])
    return MaskMeans(digit, background)


class Gallery(NamedTuple):
    """Some images as CAT sees them, on the [0, 1] scale.

    Attributes:
      natural, adversarial, calibrated: [n, H, W, C], the three views.
      mask: M, [n, H, W, C] or [n, H, W, 1].
      labels: [n].
      predicted: [n, 3], what the classifier says of the three views, in this order.
    """

    natural: np.ndarray
    adversarial: np.ndarray
    mask: np.ndarray
    calibrated: np.ndarray
    labels: np.ndarray
    predicted: np.ndarray


def gallery(
    classifier: nn.Module,
    mask_net: nn.Module,
    attack: Attack,
    state: TrainState,
    split: Split,
    *,
    seed: int,
) -> Gallery:
    """The views of a few images (Eqs. 9 and 10) and their masks, in inference mode.

    Args: as for `mask_means`; `split` is one batch.
    """
    f, g = (functools.partial(forward, net, train=False) for net in (classifier, mask_net))

    @jax.jit
    def views(state: TrainState, images: Array, labels: Array) -> tuple[Array, ...]:
        natural = to_unit(images)
        adversarial, _ = attack(f, state.classifier, natural, labels, jax.random.key(seed))
        delta = adversarial - natural
        mask, _ = g(state.mask_net, natural, delta)
        shown = (natural, adversarial, natural + mask * delta)
        said = [jnp.argmax(f(state.classifier, view)[0], axis=-1) for view in shown]
        return (*shown, mask, jnp.stack(said, axis=-1))

    natural, adversarial, calibrated, mask, predicted = jax.device_get(views(state, *split))
    return Gallery(natural, adversarial, mask, calibrated, split.labels, predicted)
