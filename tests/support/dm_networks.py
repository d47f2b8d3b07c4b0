"""DeepMind's networks in PyTorch, by their published names, as models with generated data are."""

import torch
from torch import nn
from torch.nn import functional

LAYERS = {"wide": ("conv_0", "conv_1"), "preact": ("conv_2d_1", "conv_2d_2")}


def conv(inputs, outputs, size, stride=1, padding=0):
    return nn.Conv2d(inputs, outputs, size, stride, padding, bias=False)


class Block(nn.Module):
    """Of kind "wide": a 1x1 shortcut of the activated input; "preact": a 3x3 one of the input."""

    def __init__(self, kind, inputs, outputs, stride):
        super().__init__()
        self.kind, self.stride = kind, stride
        first, self.second = LAYERS[kind]
        self.first = first
        self.batchnorm_0, self.batchnorm_1 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(outputs)
        setattr(self, first, conv(inputs, outputs, 3, stride))
        setattr(self, self.second, conv(outputs, outputs, 3, 1, 1))
        if inputs != outputs:
            self.shortcut = conv(inputs, outputs, 1 if kind == "wide" else 3, stride)

    def pad(self, x):
        return functional.pad(x, (1, 1, 1, 1) if self.stride == 1 else (0, 1, 0, 1))

    def forward(self, x):
        active = functional.silu(self.batchnorm_0(x))
        shortcut = x
        if hasattr(self, "shortcut"):
            shortcut = self.shortcut(active if self.kind == "wide" else self.pad(x))
        y = getattr(self, self.first)(self.pad(active))
        return shortcut + getattr(self, self.second)(functional.silu(self.batchnorm_1(y)))


def stage(kind, blocks, inputs, outputs, stride):
    sizes = [(inputs, stride), *[(outputs, 1)] * (blocks - 1)]
    return nn.Sequential(*(Block(kind, size, outputs, stride) for size, stride in sizes))


class Network(nn.Module):
    """Stages of these widths; it normalises its images by the buffers `mean` and `std`."""

    def __init__(self, kind, blocks, widths, num_classes=10):
        super().__init__()
        self.kind = kind
        first, *widths = widths
        self.register_buffer("mean", torch.tensor((0.4914, 0.4822, 0.4465)).view(3, 1, 1))
        self.register_buffer("std", torch.tensor((0.2471, 0.2435, 0.2616)).view(3, 1, 1))
        setattr(self, "init_conv" if kind == "wide" else "conv_2d", conv(3, first, 3, 1, 1))
        shapes = list(zip([first, *widths[:-1]], widths, strict=True))
        stages = [stage(kind, blocks, *shape, 2 if i else 1) for i, shape in enumerate(shapes)]
        if kind == "wide":
            stages = [nn.ModuleDict({"block": module}) for module in stages]
            self.layer = nn.ModuleList(stages)
        else:
            for i, module in enumerate(stages):
                setattr(self, f"layer_{i}", module)
        self.num_stages = len(stages)
        self.batchnorm, self.logits = nn.BatchNorm2d(widths[-1]), nn.Linear(widths[-1], num_classes)

    def forward(self, x):
        wide = self.kind == "wide"
        x = (self.init_conv if wide else self.conv_2d)((x - self.mean) / self.std)
        for i in range(self.num_stages):
            x = self.layer[i]["block"](x) if wide else getattr(self, f"layer_{i}")(x)
        return self.logits(functional.silu(self.batchnorm(x)).mean((2, 3)))


def wide(depth, width):
    return Network("wide", (depth - 4) // 6, [16, *(16 * 2**i * width for i in range(3))])


def preact():
    return Network("preact", 2, [64, 64, 128, 256, 512])


def randomised(model):
    """The network in inference mode with random weights, scales, shifts and statistics."""
    torch.manual_seed(0)
    for name, value in model.state_dict().items():
        if name.endswith("running_var"):
            value.uniform_(0.5, 1.5)
        elif value.ndim == 1:
            value.uniform_(-0.5, 1.0)
        elif value.ndim > 1 and name not in ("mean", "std"):
            value.normal_(0, (2 / value[0].numel()) ** 0.5)
    return model.eval()
