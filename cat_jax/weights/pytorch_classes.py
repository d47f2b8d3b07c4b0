"""Our classifiers as PyTorch modules, whose entries have the published names.

Exports copy these classes into a file that needs no cat_jax, so each class uses only PyTorch and
the classes before it.
"""

import torch
from torch import nn
from torch.nn import functional


class SmallCNN(nn.Sequential):
    """Four convolutions and two linear layers, for images [B, C, H, W]."""

    def __init__(self, num_classes: int, image_shape: tuple[int, int, int]) -> None:
        height, width, channels = image_shape
        layers: list[nn.Module] = []
        for features, stride in ((32, 1), (32, 2), (64, 1), (64, 2)):
            layers += [nn.Conv2d(channels, features, 3, stride, padding=1), nn.ReLU()]
            height, width, channels = -(-height // stride), -(-width // stride), features
        layers += [nn.Flatten(), nn.Linear(height * width * channels, 100), nn.ReLU()]
        super().__init__(*layers, nn.Linear(100, num_classes))


class PreActBlock(nn.Module):
    """norm-relu-conv twice; where the shape changes, a 1x1 convolution of the activated input."""

    def __init__(self, channels: int, features: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, features, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(features)
        self.conv2 = nn.Conv2d(features, features, 3, padding=1, bias=False)
        self.shortcut: nn.Module | None = None
        if stride != 1 or channels != features:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, features, 1, stride, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W] -> [B, features, H / stride, W / stride]."""
        active = functional.relu(self.bn1(x))
        shortcut = x if self.shortcut is None else self.shortcut(active)
        return shortcut + self.conv2(functional.relu(self.bn2(self.conv1(active))))


class PreActResNet18(nn.Module):
    """PreAct ResNet-18 for 32x32 images, with a last norm before pooling."""

    def __init__(self, num_classes: int, image_shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(image_shape[-1], 64, 3, padding=1, bias=False)
        channels = 64
        for i, (features, stride) in enumerate(((64, 1), (128, 2), (256, 2), (512, 2)), start=1):
            blocks = [PreActBlock(channels, features, stride), PreActBlock(features, features, 1)]
            setattr(self, f"layer{i}", nn.Sequential(*blocks))
            channels = features
        self.bn = nn.BatchNorm2d(channels)
        self.linear = nn.Linear(channels, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images [B, C, H, W] -> logits [B, K]."""
        x = self.conv1(images)
        for i in range(1, 5):
            x = getattr(self, f"layer{i}")(x)
        return self.linear(functional.relu(self.bn(x)).mean((2, 3)))


class BasicBlock(nn.Module):
    """conv-norm-relu-conv-norm, plus the input, relu."""

    def __init__(self, channels: int, features: int, stride: int) -> None:
        super().__init__()
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
        y = self.conv2(functional.relu(self.bn1(self.conv1(x))))
        return functional.relu(self.bn2(y) + self.shortcut(x))


class ResNet18(nn.Module):
    """Post-activation ResNet-18 for 32x32 images."""

    def __init__(self, num_classes: int, image_shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(image_shape[-1], 64, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        channels = 64
        for i, (features, stride) in enumerate(((64, 1), (128, 2), (256, 2), (512, 2)), start=1):
            blocks = [BasicBlock(channels, features, stride), BasicBlock(features, features, 1)]
            setattr(self, f"layer{i}", nn.Sequential(*blocks))
            channels = features
        self.linear = nn.Linear(channels, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images [B, C, H, W] -> logits [B, K]."""
        x = functional.relu(self.bn1(self.conv1(images)))
        for i in range(1, 5):
            x = getattr(self, f"layer{i}")(x)
        return self.linear(x.mean((2, 3)))


class WideBlock(nn.Module):
    """norm-relu-conv twice; where the width changes, a 1x1 convolution of the activated input."""

    def __init__(self, channels: int, features: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, features, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(features)
        self.conv2 = nn.Conv2d(features, features, 3, padding=1, bias=False)
        self.convShortcut: nn.Module | None = None
        if channels != features:
            self.convShortcut = nn.Conv2d(channels, features, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W] -> [B, features, H / stride, W / stride]."""
        active = functional.relu(self.bn1(x))
        shortcut = x if self.convShortcut is None else self.convShortcut(active)
        return shortcut + self.conv2(functional.relu(self.bn2(self.conv1(active))))


class WideStage(nn.Module):
    """Blocks of one width; the first one strides."""

    def __init__(self, blocks: int, channels: int, features: int, stride: int) -> None:
        super().__init__()
        layers = [WideBlock(channels, features, stride)]
        self.layer = nn.Sequential(
            *layers, *(WideBlock(features, features, 1) for _ in range(blocks - 1))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W] -> [B, features, H / stride, W / stride]."""
        return self.layer(x)


class WideResNet(nn.Module):
    """Wide ResNet for 32x32 images, without dropout."""

    def __init__(
        self, num_classes: int, image_shape: tuple[int, int, int], depth: int, widen_factor: int
    ) -> None:
        super().__init__()
        blocks, channels = (depth - 4) // 6, 16
        self.conv1 = nn.Conv2d(image_shape[-1], channels, 3, padding=1, bias=False)
        for i, (width, stride) in enumerate(((16, 1), (32, 2), (64, 2)), start=1):
            features = width * widen_factor
            setattr(self, f"block{i}", WideStage(blocks, channels, features, stride))
            channels = features
        self.bn1 = nn.BatchNorm2d(channels)
        self.fc = nn.Linear(channels, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images [B, C, H, W] -> logits [B, K]."""
        x = self.conv1(images)
        for i in range(1, 4):
            x = getattr(self, f"block{i}")(x)
        return self.fc(functional.relu(self.bn1(x)).mean((2, 3)))
