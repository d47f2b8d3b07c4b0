"""PyTorch twins of our networks: the same weights give the same output.

Their modules carry the published names, so that a state dict of `pytorch_names.to_state_dict`
fits as it is.
"""

from typing import Any

import numpy as np
import torch
from flax import linen
from torch import nn
from torch.nn import functional

from cat_jax.errors import UsageError
from cat_jax.weights import pytorch_classes, pytorch_names
from cat_jax.weights.pytorch_classes import BasicBlock

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # (features, stride of the first block)


def small_cnn(classifier: Any, image_shape: tuple[int, int, int]) -> nn.Module:
    """Twin of `networks.SmallCNN` for images [H, W, C]."""
    return pytorch_classes.SmallCNN(classifier.num_classes, image_shape)


class PreActResNet18(pytorch_classes.PreActResNet18):
    """Twin of `networks.PreActResNet18`."""

    def __init__(self, classifier: Any, image_shape: tuple[int, int, int]) -> None:
        super().__init__(classifier.num_classes, image_shape)
        for name, value in (("mean", classifier.mean or (0.0,)), ("std", classifier.std or (1.0,))):
            constant = torch.tensor(value, dtype=torch.float64).reshape(1, -1, 1, 1)
            self.register_buffer(name, constant, persistent=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images [B, C, H, W] in [0, 1] -> logits [B, K]."""
        mean, std = self.mean.to(images.dtype), self.std.to(images.dtype)
        return super().forward((images - mean) / std)


class ChannelsLast(nn.Module):
    """A network that computes with channels_last and takes contiguous images."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network.to(memory_format=torch.channels_last)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images [B, C, H, W] in [0, 1] -> logits [B, K]."""
        images = images.view_as(images)
        if images.requires_grad:
            # Attacks that flatten gradients with `view` need them contiguous.
            images.register_hook(torch.Tensor.contiguous)
        return self.network(images.to(memory_format=torch.channels_last))


def small_mask(mask_net: Any, image_shape: tuple[int, ...]) -> nn.Module:
    """Twin of `networks.SmallMask`."""
    del mask_net
    channels, layers = image_shape[-1], []
    for inputs, features, stride in ((channels, 64, 2), (64, 128, 1), (128, 128, 1)):
        layers += [nn.Conv2d(inputs, features, 3, stride, padding=1), nn.LeakyReLU(0.2)]
    last = nn.Conv2d(128, channels, 3, padding=1)
    return nn.Sequential(*layers, nn.Upsample(scale_factor=2), last, nn.Sigmoid())


class ResNetMask(nn.Module):
    """Twin of `networks.ResNetMask`."""

    def __init__(self, mask_net: Any, image_shape: tuple[int, ...]) -> None:
        super().__init__()
        del mask_net
        self.conv1 = nn.Conv2d(image_shape[-1], 64, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        channels = 64
        for i, (features, stride) in enumerate(STAGES, start=1):
            blocks = [BasicBlock(channels, features, stride), BasicBlock(features, features, 1)]
            setattr(self, f"layer{i}", nn.Sequential(*blocks))
            channels = features
        self.conv2 = nn.Conv2d(channels, image_shape[-1], 3, padding=1)

    def forward(self, perturbed: torch.Tensor) -> torch.Tensor:
        """x + delta [B, C, H, W] -> M [B, C, H, W]."""
        x = functional.relu(self.bn1(self.conv1(perturbed)))
        for i in range(1, len(STAGES) + 1):
            x = getattr(self, f"layer{i}")(x)
        return torch.sigmoid(self.conv2(functional.interpolate(x, scale_factor=8)))


TWINS = {
    "SmallCNN": small_cnn,
    "PreActResNet18": PreActResNet18,
    "SmallMask": small_mask,
    "ResNetMask": ResNetMask,
}


def twin(network: linen.Module, variables: Any, image_shape: tuple[int, ...]) -> nn.Module:
    """The twin of `network` with these weights, in inference mode.

    Raises:
      UsageError: for a network that has no twin here.
    """
    name = type(network).__name__
    if name not in TWINS:
        raise UsageError(f"{name} has no PyTorch twin; available: {', '.join(TWINS)}.")
    made = TWINS[name](network, image_shape)
    entries = pytorch_names.to_state_dict(name, variables)
    found = made.load_state_dict(
        {key: torch.tensor(value) for key, value in entries.items()}, strict=False
    )
    names = (*found.missing_keys, *found.unexpected_keys)
    odd = [name for name in names if not name.endswith("num_batches_tracked")]
    if odd:
        raise UsageError(f"The twin of {name} differs in {', '.join(odd)}.")
    return made.eval().requires_grad_(False)


def to_torch(images: Any) -> torch.Tensor:
    """[B, H, W, C] -> [B, C, H, W]."""
    return torch.tensor(np.asarray(images)).permute(0, 3, 1, 2).contiguous()


def to_numpy(images: torch.Tensor) -> np.ndarray:
    """[B, C, H, W] -> [B, H, W, C]."""
    return images.permute(0, 2, 3, 1).contiguous().numpy()
