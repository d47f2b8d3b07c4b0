"""Wide ResNet (Zagoruyko & Komodakis 2016) for 32x32 images, without dropout."""

import functools
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jax.nn.initializers import variance_scaling

from cat_jax.errors import UsageError
from cat_jax.networks.conv import Conv
from cat_jax.networks.initializers import kernel_init
from cat_jax.networks.inside import ACTIVATIONS, cast, recomputed
from cat_jax.networks.norm import BatchNorm
from cat_jax.networks.normalize import normalize
from cat_jax.networks.record import Classifier, Shapes, StateDict, size
from cat_jax.runtime.registry import register
from cat_jax.types import Array

# Kaiming normal, not truncated: a standard deviation of sqrt(2 / (size * size * features)).
WideConv = functools.partial(Conv, kernel_init=variance_scaling(2.0, "fan_out", "normal"))


class WideBlock(nn.Module):
    """norm-activation-conv twice.

    Where the width changes, the shortcut is a 1x1 convolution of the activated input.
    """

    features: int
    stride: int
    axis_name: str | None
    activation: str

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """[B, H, W, C] -> [B, H / stride, W / stride, features]."""
        act = ACTIVATIONS[self.activation]
        norm = functools.partial(BatchNorm, axis_name=self.axis_name)
        shortcut, x = x, act(norm(name="bn1")(x, train=train))
        if x.shape[-1] != self.features:
            shortcut = WideConv(self.features, 1, self.stride, name="convShortcut")(x)
        x = WideConv(self.features, stride=self.stride, name="conv1")(x)
        x = WideConv(self.features, name="conv2")(act(norm(name="bn2")(x, train=train)))
        return x + shortcut


class WideStage(nn.Module):
    """Blocks of one width; the first one strides. Named as published, for published weights."""

    blocks: int
    features: int
    stride: int
    axis_name: str | None
    remat: bool
    activation: str

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """[B, H, W, C] -> [B, H / stride, W / stride, features]."""
        block = recomputed(WideBlock, self.remat)
        for i in range(self.blocks):
            stride = self.stride if i == 0 else 1
            shape = (self.features, stride)
            x = block(*shape, self.axis_name, self.activation, name=f"layer_{i}")(x, train)
        return x


class WideResNet(nn.Module):
    """The paper's large classifier; 46,160,474 parameters at WRN-34-10 and 10 classes.

    Attributes:
      num_classes: K.
      depth: 6n + 4, with n blocks in each of the three stages.
      widen_factor: stages have 16, 32 and 64 times as many features.
      mean, std: per channel; normalisation is part of the network. Empty: none.
      axis_name: pmapped axis over which training computes batch statistics.
      dtype: type that the inside computes in, such as bfloat16; None: dtype of the images.
      remat: compute each block again in the backward pass, in less memory.
      activation: "relu", "silu" or "gelu".
    """

    num_classes: int = 10
    depth: int = 34
    widen_factor: int = 10
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    axis_name: str | None = None
    dtype: Any = None
    remat: bool = False
    activation: str = "relu"

    @nn.compact
    def __call__(self, images: Array, *, train: bool = False) -> Array:
        """Images [B, 32, 32, 3] in [0, 1] -> logits [B, K]."""
        blocks, rest = divmod(self.depth - 4, 6)
        if rest or blocks < 1:
            raise UsageError(f"depth={self.depth}; expected 6n + 4 with n >= 1, such as 28 or 34.")
        x = WideConv(16, name="conv1")(normalize(images, self.mean, self.std))
        x, act = cast(x, self.dtype), ACTIVATIONS[self.activation]
        for i, (width, stride) in enumerate(((16, 1), (32, 2), (64, 2)), start=1):
            features = width * self.widen_factor
            shape = (blocks, features, stride)
            inside = (self.axis_name, self.remat, self.activation)
            x = WideStage(*shape, *inside, name=f"block{i}")(x, train)
        x = act(BatchNorm(self.axis_name, name="bn1")(x, train=train))
        fc = nn.Dense(self.num_classes, kernel_init=kernel_init, name="fc")
        return fc(jnp.mean(x, (1, 2), images.dtype))


def _arguments(shapes: Shapes) -> dict[str, int]:
    blocks = {name.split(".")[2] for name in shapes if name.startswith("block1.layer.")}
    width = size(shapes, "block1.layer.0.conv1.weight", 0)
    return {"depth": 6 * len(blocks) + 4, "widen_factor": max(width // 16, 1)}


register(
    Classifier(
        "WideResNet",
        WideResNet,
        fields=("depth", "widen_factor", "activation"),
        state_dict=StateDict(
            ("block1.layer.0.conv1.weight",), "conv1.weight", "fc.weight", arguments=_arguments
        ),
    )
)
