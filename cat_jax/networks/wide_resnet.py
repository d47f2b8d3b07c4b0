"""Wide ResNet (Zagoruyko & Komodakis 2016) for 32x32 images, without dropout."""

import functools
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jax.nn.initializers import variance_scaling

from cat_jax.errors import UsageError, check_choice
from cat_jax.networks.conv import Conv
from cat_jax.networks.initializers import kernel_init
from cat_jax.networks.inside import ACTIVATIONS, cast, recomputed
from cat_jax.networks.norm import BatchNorm
from cat_jax.networks.normalize import normalize
from cat_jax.networks.record import Classifier, Shapes, StateDict, size
from cat_jax.runtime.registry import register
from cat_jax.types import Array

HEADS = ("linear", "cosine")
MAX_BLOCKS = 32  # In a stage of a file with DeepMind's names: depth 196.
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
    pads: str

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """[B, H, W, C] -> [B, H / stride, W / stride, features]."""
        act = ACTIVATIONS[self.activation]
        norm = functools.partial(BatchNorm, axis_name=self.axis_name)
        shortcut, x = x, act(norm(name="bn1")(x, train=train))
        if x.shape[-1] != self.features:
            shortcut = WideConv(self.features, 1, self.stride, name="convShortcut")(x)
        x = WideConv(self.features, stride=self.stride, pads=self.pads, name="conv1")(x)
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
    pads: str

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """[B, H, W, C] -> [B, H / stride, W / stride, features]."""
        block = recomputed(WideBlock, self.remat)
        for i in range(self.blocks):
            stride = self.stride if i == 0 else 1
            inside = (self.features, stride, self.axis_name, self.activation, self.pads)
            x = block(*inside, name=f"layer_{i}")(x, train)
        return x


class CosineHead(nn.Module):
    """Cosines of the features and of the weights of each class (Pang et al. 2020)."""

    num_classes: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[B, C] -> [B, K]."""
        kernel = self.param("kernel", kernel_init, (x.shape[-1], self.num_classes))
        return _unit(x, 1) @ _unit(kernel.astype(x.dtype), 0)


def _unit(vectors: Array, axis: int) -> Array:
    """The vectors along an axis, with L2 norm 1; vectors of 0 stay."""
    squares = jnp.sum(jnp.square(vectors), axis, keepdims=True)
    return vectors * lax.rsqrt(jnp.maximum(squares, 1e-24))


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
      head: last layer, "linear" or "cosine", which has no bias and normalises features and weights.
      pads: where convolutions of stride 2 pad, on "both" sides or at the "end".
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
    head: str = "linear"
    pads: str = "both"

    @nn.compact
    def __call__(self, images: Array, *, train: bool = False) -> Array:
        """Images [B, 32, 32, 3] in [0, 1] -> logits [B, K]."""
        blocks, rest = divmod(self.depth - 4, 6)
        if rest or blocks < 1:
            raise UsageError(f"depth={self.depth}; expected 6n + 4 with n >= 1, such as 28 or 34.")
        x = WideConv(16, name="conv1")(normalize(images, self.mean, self.std))
        x, act = cast(x, self.dtype), ACTIVATIONS[self.activation]
        inside: dict[str, Any] = dict(axis_name=self.axis_name, remat=self.remat, blocks=blocks)
        inside |= dict(activation=self.activation, pads=self.pads)
        for i, (width, stride) in enumerate(((16, 1), (32, 2), (64, 2)), start=1):
            features = width * self.widen_factor
            stage = WideStage(features=features, stride=stride, **inside, name=f"block{i}")
            x = stage(x, train)
        x = act(BatchNorm(self.axis_name, name="bn1")(x, train=train))
        x = jnp.mean(x, (1, 2), images.dtype)
        check_choice("head", self.head, HEADS)
        if self.head == "cosine":
            return CosineHead(self.num_classes, name="fc")(x)
        return nn.Dense(self.num_classes, kernel_init=kernel_init, name="fc")(x)


def _arguments(shapes: Shapes, stage: str, conv: str) -> dict[str, int]:
    """Depth and width, by the names of the first stage and of the convolutions of its blocks."""
    blocks = {name.removeprefix(stage).split(".")[0] for name in shapes if name.startswith(stage)}
    width = size(shapes, f"{stage}0.{conv}.weight", 0)
    return {"depth": 6 * len(blocks) + 4, "widen_factor": max(width // 16, 1)}


# DeepMind's names of the layers of a block, and ours.
_LAYERS = {
    **{"batchnorm_0": "bn1", "conv_0": "conv1", "batchnorm_1": "bn2", "conv_1": "conv2"},
    "shortcut": "convShortcut",
}
_MODULES = {"init_conv": "conv1", "batchnorm": "bn1", "logits": "fc"} | {
    f"layer.{stage}.block.{block}.{theirs}": f"block{stage + 1}.layer.{block}.{ours}"
    for stage in range(3)
    for block in range(MAX_BLOCKS)
    for theirs, ours in _LAYERS.items()
}

register(
    Classifier(
        "WideResNet",
        WideResNet,
        fields=("depth", "widen_factor", "activation", "head"),
        state_dict=StateDict(
            *(("block1.layer.0.conv1.weight",), "conv1.weight", "fc.weight"),
            arguments=functools.partial(_arguments, stage="block1.layer.", conv="conv1"),
            unseen={"activation": ("relu",)},
        ),
    ),
    # The network of DeepMind's models, as of all models with generated data (Gowal et al. 2020).
    Classifier(
        "DMWideResNet",
        functools.partial(WideResNet, pads="end"),
        fields=("depth", "widen_factor", "activation"),
        multiple=4,
        state_dict=StateDict(
            *(("layer.0.block.0.conv_0.weight",), "init_conv.weight", "logits.weight"),
            modules=_MODULES,
            arguments=functools.partial(_arguments, stage="layer.0.block.", conv="conv_0"),
            unseen={"activation": ("silu",)},
        ),
    ),
)
