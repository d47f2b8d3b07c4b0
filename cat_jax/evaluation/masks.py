"""Where the mask network keeps the perturbation: on bright pixels or on dark ones."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from cat_jax.data import Split, padded_batches, to_unit
from cat_jax.step.phases import forward
from cat_jax.step.state import TrainState
from cat_jax.types import Array, Attack

INK = 0.5  # A pixel this bright belongs to the digit, in images of digits, white on black.


class MaskViews(NamedTuple):
    """Images, their adversarial and calibrated views, and the mask (Eqs. 9 and 10).

    Attributes:
      natural, adversarial, mask, calibrated: [N, H, W, C] in [0, 1]. Without clipping, adversarial
        and calibrated images may leave [0, 1].
      labels: [N].
      predicted: [N, 3], predicted classes of natural, adversarial and calibrated images.
    """

    natural: Array
    adversarial: Array
    mask: Array
    calibrated: Array
    labels: Array
    predicted: Array


class MaskMeans(NamedTuple):
    """Means of M over bright pixels, which show the digit in images of digits, and over others."""

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
) -> MaskMeans | None:
    """Means of M = g(x, delta) over bright and over dark pixels, delta of `attack`.

    Both networks are in inference mode. In the paper, MNIST masks are high on the background and
    low on the digit.

    Args:
      classifier, mask_net: f and g.
      attack: the training attack.
      state: parameters of both networks.
      split: single-channel images.
      seed: seed of the attack's noise, which depends on the index of the image.
      batch_size: number of images computed at a time.

    Returns:
      The means; None if the images have no bright pixels, or no others.
    """
    views_of = _views(classifier, mask_net, attack, seed)

    @jax.jit
    def sums(state: TrainState, images: Array, labels: Array, indices: Array) -> Array:
        """[B, 2, 2]: for each image, sum of M and number of pixels, of bright and dark pixels."""
        natural, _, mask, *_ = views_of(state, images, labels, indices)
        ink = (natural >= INK).astype(mask.dtype)
        axes = (1, 2, 3)
        kinds = [(jnp.sum(mask * kind, axes), jnp.sum(kind, axes)) for kind in (ink, 1 - ink)]
        return jnp.stack([jnp.stack(kind, -1) for kind in kinds], 1)

    total = jnp.zeros((2, 2))
    for indices, count in padded_batches(len(split.labels), batch_size):
        of_images = sums(state, split.images[indices], split.labels[indices], indices)
        total += jnp.sum(of_images[:count], axis=0)
    if not total[:, 1].all():
        return None
    digit, background = (float(part) for part in total[:, 0] / total[:, 1])
    return MaskMeans(digit, background)


def mask_views(
    classifier: nn.Module,
    mask_net: nn.Module,
    attack: Attack,
    state: TrainState,
    split: Split,
    *,
    seed: int,
) -> MaskViews:
    """Views of all images of a small split, as in the paper's Figure 2; arguments as above."""
    views_of = jax.jit(_views(classifier, mask_net, attack, seed))
    return views_of(state, split.images, split.labels, jnp.arange(len(split.labels)))


def _views(
    classifier: nn.Module, mask_net: nn.Module, attack: Attack, seed: int
) -> Callable[[TrainState, Array, Array, Array], MaskViews]:
    """(state, images, labels, indices) -> views, both networks in inference mode."""
    f, g = (functools.partial(forward, net, train=False) for net in (classifier, mask_net))
    key = jax.random.key(seed)

    def views(state: TrainState, images: Array, labels: Array, indices: Array) -> MaskViews:
        natural = to_unit(images)
        keys = jax.vmap(functools.partial(jax.random.fold_in, key))(indices)
        adversarial, _ = attack(f, state.classifier, natural, labels, keys)
        delta = adversarial - natural
        mask, _ = g(state.mask_net, natural, delta)
        mask = jnp.broadcast_to(mask, natural.shape)
        calibrated = natural + mask * delta
        shown = (natural, adversarial, calibrated)
        classes = [jnp.argmax(f(state.classifier, view)[0], axis=-1) for view in shown]
        predicted = jnp.stack(classes, axis=-1)
        return MaskViews(natural, adversarial, mask, calibrated, labels, predicted)

    return views
