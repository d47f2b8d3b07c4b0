"""Our classifiers as PyTorch modules, whose entries have the published names.

Exports copy these classes into a file that needs no cat_jax, so each class uses only PyTorch and
the classes before it.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class SmallCNN(nn.Sequential):
    """Four convolutions and two linear layers, for images [B, C, H, W]."""

    def __init__(
        self, num_classes: int, image_shape: tuple[int, int, int], activation: str = "relu"
    ) -> None:
        height, width, channels = image_shape
        act = {"relu": nn.ReLU, "silu": nn.SiLU, "gelu": nn.GELU}[activation]
        layers: list[nn.Module] = []
        for features, stride in ((32, 1), (32, 2), (64, 1), (64, 2)):
            layers += [nn.Conv2d(channels, features, 3, stride, padding=1), act()]
            height, width, channels = -(-height // stride), -(-width // stride), features
        layers += [nn.Flatten(), nn.Linear(height * width * channels, 100), act()]
        super().__init__(*layers, nn.Linear(100, num_classes))


class StridedCNN(nn.Sequential):
    """Two convolutions of stride 2 and two linear layers, for images [B, C, H, W]."""

    def __init__(self, num_classes: int, image_shape: tuple[int, int, int]) -> None:
        height, width, channels = image_shape
        super().__init__(
            *(nn.Conv2d(channels, 16, 4, 2, padding=1), nn.ReLU()),
            *(nn.Conv2d(16, 32, 4, 2, padding=1), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(32 * (height // 4) * (width // 4), 100), nn.ReLU()),
            nn.Linear(100, num_classes),
        )


class PreActBlock(nn.Module):
    """norm-activation-conv twice; where the shape changes, the shortcut is a 1x1 convolution."""

    def __init__(
        self, channels: int, features: int, stride: int, activation: str, start: str
    ) -> None:
        super().__init__()
        self.act, self.start = getattr(functional, activation), start
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, features, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(features)
        self.conv2 = nn.Conv2d(features, features, 3, padding=1, bias=False)
        self.shortcut: nn.Module | None = None
        if stride != 1 or channels != features:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, features, 1, stride, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W] -> [B, features, H / stride, W / stride]."""
        active = self.act(self.bn1(x))
        shortcut = x
        if self.shortcut is not None:
            shortcut = self.shortcut(active if self.start == "activated" else x)
        return shortcut + self.conv2(self.act(self.bn2(self.conv1(active))))


class PreActResNet18(nn.Module):
    """PreAct ResNet-18 for 32x32 images."""

    def __init__(
        self,
        num_classes: int,
        image_shape: tuple[int, int, int],
        activation: str = "relu",
        shortcut: str = "activated",
        last_norm: bool = True,
    ) -> None:
        super().__init__()
        self.act = getattr(functional, activation)
        self.conv1 = nn.Conv2d(image_shape[-1], 64, 3, padding=1, bias=False)
        channels = 64
        for i, (features, stride) in enumerate(((64, 1), (128, 2), (256, 2), (512, 2)), start=1):
            shapes = ((channels, features, stride), (features, features, 1))
            blocks = [PreActBlock(*shape, activation, shortcut) for shape in shapes]
            setattr(self, f"layer{i}", nn.Sequential(*blocks))
            channels = features
        self.bn = nn.BatchNorm2d(channels) if last_norm else None
        self.linear = nn.Linear(channels, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images [B, C, H, W] -> logits [B, K]."""
        x = self.conv1(images)
        for i in range(1, 5):
            x = getattr(self, f"layer{i}")(x)
        x = x if self.bn is None else self.act(self.bn(x))
        return self.linear(x.mean((2, 3)))


class BasicBlock(nn.Module):
    """conv-norm-activation-conv-norm, plus the input, activation."""

    expansion = 1

    def __init__(self, channels: int, features: int, stride: int, activation: str = "relu") -> None:
        super().__init__()
        self.act = getattr(functional, activation)
        self.conv1 = nn.Conv2d(channels, features, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(features)
        self.conv2 = nn.Conv2d(features, features, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(features)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != features:
            shortcut = nn.Conv2d(channels, features, 1, stride, bias=False)
            self.shortcut = nn.Sequential(shortcut, nn.BatchNorm2d(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W] -> [B, features, H / stride, W / stride]."""
        y = self.conv2(self.act(self.bn1(self.conv1(x))))
        return self.act(self.bn2(y) + self.shortcut(x))


class BottleneckBlock(nn.Module):
    """Convolutions of 1x1, 3x3 and 1x1, each with its norm, plus the input, activation."""

    expansion = 4

    def __init__(self, channels: int, features: int, stride: int, activation: str = "relu") -> None:
        super().__init__()
        self.act = getattr(functional, activation)
        self.conv1 = nn.Conv2d(channels, features, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(features)
        self.conv2 = nn.Conv2d(features, features, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(features)
        self.conv3 = nn.Conv2d(features, 4 * features, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * features)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != 4 * features:
            shortcut = nn.Conv2d(channels, 4 * features, 1, stride, bias=False)
            self.shortcut = nn.Sequential(shortcut, nn.BatchNorm2d(4 * features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W] -> [B, 4 * features, H / stride, W / stride]."""
        y = self.conv2(self.act(self.bn1(self.conv1(x))))
        return self.act(self.bn3(self.conv3(self.act(self.bn2(y)))) + self.shortcut(x))


class ResNet18(nn.Module):
    """Post-activation ResNet-18 for 32x32 images."""

    def __init__(
        self, num_classes: int, image_shape: tuple[int, int, int], activation: str = "relu"
    ) -> None:
        super().__init__()
        self.act = getattr(functional, activation)
        self.build(BasicBlock, (2, 2, 2, 2), num_classes, image_shape[-1], activation)

    def build(
        self,
        block: Any,
        sizes: tuple[int, ...],
        num_classes: int,
        inputs: int,
        activation: str,
    ) -> None:
        """Makes the layers; `sizes` has the number of blocks in each stage."""
        self.conv1 = nn.Conv2d(inputs, 64, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        channels = 64
        for i, (features, stride) in enumerate(((64, 1), (128, 2), (256, 2), (512, 2)), start=1):
            blocks = []
            for j in range(sizes[i - 1]):
                blocks.append(block(channels, features, 1 if j else stride, activation))
                channels = block.expansion * features
            setattr(self, f"layer{i}", nn.Sequential(*blocks))
        self.linear = nn.Linear(channels, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images [B, C, H, W] -> logits [B, K]."""
        x = self.act(self.bn1(self.conv1(images)))
        for i in range(1, 5):
            x = getattr(self, f"layer{i}")(x)
        return self.linear(x.mean((2, 3)))


class ResNet50(ResNet18):
    """Post-activation ResNet-50 for 32x32 images."""

    def __init__(
        self, num_classes: int, image_shape: tuple[int, int, int], activation: str = "relu"
    ) -> None:
        nn.Module.__init__(self)
        self.act = getattr(functional, activation)
        self.build(BottleneckBlock, (3, 4, 6, 3), num_classes, image_shape[-1], activation)


class WideBlock(nn.Module):
    """norm-activation-conv twice; where the width changes, a 1x1 convolution of the activated."""

    def __init__(self, channels: int, features: int, stride: int, activation: str) -> None:
        super().__init__()
        self.act = getattr(functional, activation)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, features, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(features)
        self.conv2 = nn.Conv2d(features, features, 3, padding=1, bias=False)
        self.convShortcut: nn.Module | None = None
        if channels != features:
            self.convShortcut = nn.Conv2d(channels, features, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W] -> [B, features, H / stride, W / stride]."""
        active = self.act(self.bn1(x))
        shortcut = x if self.convShortcut is None else self.convShortcut(active)
        return shortcut + self.conv2(self.act(self.bn2(self.conv1(active))))


class WideStage(nn.Module):
    """Blocks of one width; the first one strides."""

    def __init__(
        self, blocks: int, channels: int, features: int, stride: int, activation: str
    ) -> None:
        super().__init__()
        layers = [WideBlock(channels, features, stride, activation)]
        layers += [WideBlock(features, features, 1, activation) for _ in range(blocks - 1)]
        self.layer = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W] -> [B, features, H / stride, W / stride]."""
        return self.layer(x)


class WideResNet(nn.Module):
    """Wide ResNet for 32x32 images, without dropout."""

    def __init__(
        self,
        num_classes: int,
        image_shape: tuple[int, int, int],
        depth: int,
        widen_factor: int,
        activation: str = "relu",
        head: str = "linear",
    ) -> None:
        super().__init__()
        self.act, self.head = getattr(functional, activation), head
        blocks, channels = (depth - 4) // 6, 16
        self.conv1 = nn.Conv2d(image_shape[-1], channels, 3, padding=1, bias=False)
        for i, (width, stride) in enumerate(((16, 1), (32, 2), (64, 2)), start=1):
            features = width * widen_factor
            setattr(self, f"block{i}", WideStage(blocks, channels, features, stride, activation))
            channels = features
        self.bn1 = nn.BatchNorm2d(channels)
        self.fc = nn.Linear(channels, num_classes, bias=head == "linear")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images [B, C, H, W] -> logits [B, K]."""
        x = self.conv1(images)
        for i in range(1, 4):
            x = getattr(self, f"block{i}")(x)
        x = self.act(self.bn1(x)).mean((2, 3))
        if self.head == "linear":
            return self.fc(x)
        return functional.normalize(x) @ functional.normalize(self.fc.weight).T
