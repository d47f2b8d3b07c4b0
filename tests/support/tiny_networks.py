"""A classifier and a mask network of a few hundred weights, registered by name.

`BIASED` is the classifier with a bias towards class 1: untrained, it is right for some examples and
wrong for others, as methods that treat the two differently need it.
"""

import functools

import flax.linen as nn

from cat_jax import networks
from cat_jax.networks.conv import Conv
from cat_jax.networks.norm import BatchNorm
from cat_jax.runtime.registry import register
from cat_jax.types import DEVICES


class TinyClassifier(nn.Module):
    """Logits [B, K] of images [B, H, W, C]; learns the synthetic images in twelve steps.

    Without batch norm the images of a batch do not depend on one another.
    """

    num_classes: int = 10
    axis_name: str | None = DEVICES
    batch_norm: bool = True
    class_1_bias: float = 0.0

    @nn.compact
    def __call__(self, images, *, train=False):
        x = Conv(4)(images)
        if self.batch_norm:
            x = BatchNorm(self.axis_name)(x, train=train)
        logits = nn.Dense(self.num_classes)(nn.relu(x).reshape(len(x), -1))
        return logits.at[:, 1].add(self.class_1_bias)


class TinyMask(nn.Module):
    """Mask [B, H, W, C] of images and delta [B, H, W, C]."""

    axis_name: str | None = DEVICES
    batch_norm: bool = True

    @nn.compact
    def __call__(self, images, delta, *, train=False):
        x = images + delta
        if self.batch_norm:
            x = nn.relu(BatchNorm(self.axis_name)(Conv(4)(x), train=train))
        return nn.sigmoid(Conv(images.shape[-1])(x))


CLASSIFIER, BIASED, MASK = "TinyClassifier", "BiasedTinyClassifier", "TinyMask"
register(
    networks.Classifier(CLASSIFIER, TinyClassifier),
    networks.Classifier(BIASED, functools.partial(TinyClassifier, class_1_bias=3.0)),
    networks.MaskNet(MASK, TinyMask),
)
FIELDS = {"classifier.name": CLASSIFIER, "mask_net.name": MASK}
