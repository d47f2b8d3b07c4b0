"""The small classifier of Wong & Kolter (2018), with which Wong et al. (2020) trained on MNIST."""

import math

from flax import linen as nn

from cat_jax.networks.conv import Conv
from cat_jax.networks.initializers import dense
from cat_jax.networks.record import Classifier, Shapes, StateDict, size
from cat_jax.runtime.registry import register
from cat_jax.types import Array


class StridedCNN(nn.Module):
    """Two convolutions of stride 2 and two linear layers; 166,406 parameters on MNIST.

    Attributes:
      num_classes: K.
    """

    num_classes: int = 10

    @nn.compact
    def __call__(self, images: Array, *, train: bool = False) -> Array:
        """Images [B, H, W, C] in [0, 1] -> logits [B, K]."""
        del train
        x = images
        for i, features in enumerate((16, 32), start=1):
            x = nn.relu(Conv(features, size=4, stride=2, use_bias=True, name=f"conv{i}")(x))
        # Channels first, as PyTorch flattens: published weights then fit unchanged.
        x = x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1)
        x = nn.relu(dense(100, x.shape[-1], name="linear1")(x))
        return dense(self.num_classes, 100, name="linear2")(x)


def _side(shapes: Shapes) -> int:
    """Two strides of 2 and 32 channels lie between the images and the first linear layer."""
    return 4 * math.isqrt(size(shapes, "5.weight", 1) // 32) if "5.weight" in shapes else 32


register(
    Classifier(
        "StridedCNN",
        StridedCNN,
        multiple=4,
        state_dict=StateDict(
            signature=("5.weight", "7.weight"),
            first="0.weight",
            last="7.weight",
            modules={"0": "conv1", "2": "conv2", "5": "linear1", "7": "linear2"},
            side=_side,
        ),
    )
)
