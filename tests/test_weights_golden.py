"""golden/networks through files: what goes in comes out, in float64; PyTorch agrees.

The wide and the post-activation ResNet have their PyTorch twins here.
"""

import importlib
import pathlib
import sys

import golden
import jax
import numpy as np
import pytest
from golden_networks import CASES, build, images_of

from cat_jax import networks, weights
from cat_jax.weights import pytorch_names, weight_files
from cat_jax.weights.weight_files import Part

BENCHMARKS = pathlib.Path(__file__).parent.parent / "benchmarks"
SMALL = ("cat_mnist_f", "cat_mnist_g")
EVERY = [pytest.param(c, marks=() if c in SMALL else pytest.mark.slow) for c in CASES]


def make(name):
    """Our network of a golden case, as it was built there."""
    info = golden.load("networks")[0][name]
    classes = {"num_classes": info["state_dict"][-1][1][0]} if info["kind"] == "classifier" else {}
    return getattr(networks, CASES[name])(**classes, **golden.normaliser(name))


def entries_of(name):
    meta, _ = golden.load("networks")
    return golden.state_dict(meta[name]["state_dict"], meta["_meta"]["weight_seed"])


@pytest.mark.parametrize("name", EVERY)
def test_golden_weights_come_out_of_a_file_as_they_went_in(name, tmp_path, float64):
    want = {k: v for k, v in entries_of(name).items() if not k.endswith("num_batches_tracked")}
    prefixed = {f"module.{k}": v for k, v in want.items()}
    (file,) = weight_files.write(
        tmp_path / "w", "safetensors", {weights.CLASSIFIER: Part(prefixed, {})}
    )
    loaded = weights.load(file, make(name))
    got = pytorch_names.to_state_dict(CASES[name], loaded.variables)
    assert got.keys() == want.keys()
    for key, value in want.items():
        assert got[key].dtype == np.float64
        np.testing.assert_allclose(got[key], value, rtol=0, atol=1e-6, err_msg=key)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EVERY)
def test_golden_networks_go_from_pytorch_to_ours_and_back(name, tmp_path, float64):
    """A PyTorch network -> the authors' file -> ours -> our file -> another PyTorch network."""
    torch = pytest.importorskip("torch")
    info, images = golden.load("networks")[0][name], images_of(name, "float64")
    first, second = (twin_of(torch, make(name), images.shape[1:]).double() for _ in range(2))
    first.load_state_dict({k: torch.tensor(v) for k, v in entries_of(name).items()}, strict=True)
    part = weights.MASK_NET if info["kind"] == "mask" else weights.CLASSIFIER
    key = {weights.CLASSIFIER: "state_dict", weights.MASK_NET: "state_dict_mask"}[part]
    wrapped = {f"module.{k}": v for k, v in first.state_dict().items()}
    published = tmp_path / "model_best.pth"
    if CASES[name] == "PreActResNet18":
        published = tmp_path / "RN_b_5_b1_01_e8_cw.pth"
    torch.save({key: wrapped, "test_robust_acc": 0.5}, published)

    loaded = weights.load(published, make(name), part=part)
    back = pytorch_names.to_state_dict(CASES[name], loaded.variables)
    (file,) = weight_files.write(tmp_path / "ours", "torch", {part: Part(back, {})})
    second.load_state_dict(torch.load(file, weights_only=True)[key], strict=True)
    kept = second.state_dict()
    for entry, value in first.state_dict().items():
        np.testing.assert_allclose(kept[entry], value, rtol=0, atol=1e-6, err_msg=entry)

    given = torch.tensor(np.asarray(images)).permute(0, 3, 1, 2)
    with torch.no_grad():
        theirs, again = first.eval()(given).numpy(), second.eval()(given).numpy()
    ours = np.asarray(jax.jit(build(name))(loaded.variables, images))
    ours = np.moveaxis(ours, -1, 1) if ours.ndim == 4 else ours
    for found in (again, ours):
        np.testing.assert_allclose(found, theirs, rtol=0, atol=1e-6 * np.abs(theirs).max())


def twin_of(torch, network, image_shape):
    """The PyTorch network of the published names, on images [H, W, C]."""
    sys.path.insert(0, str(BENCHMARKS))
    torch_networks = importlib.import_module("torch_networks")
    sys.path.remove(str(BENCHMARKS))
    name = type(network).__name__
    if name in torch_networks.TWINS:
        return torch_networks.TWINS[name](network, image_shape)
    return {"WideResNet": wide_resnet, "ResNet18": resnet18}[name](torch, torch_networks, network)


def resnet18(torch, torch_networks, network):
    class ResNet18(torch_networks.ResNetMask):
        def __init__(self):
            super().__init__(None, (32, 32, 3))
            del self.conv2
            self.linear = torch.nn.Linear(512, network.num_classes)

        def forward(self, x):
            x = torch.relu(self.bn1(self.conv1(x)))
            for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
                x = stage(x)
            return self.linear(x.mean((2, 3)))

    return ResNet18()


def wide_resnet(torch, torch_networks, network):
    nn = torch.nn
    constants = [torch.tensor(v).double().reshape(1, -1, 1, 1) for v in (network.mean, network.std)]

    def conv(channels, features, size, stride=1):
        return nn.Conv2d(channels, features, size, stride, padding=size // 2, bias=False)

    class Block(nn.Module):
        def __init__(self, channels, features, stride):
            super().__init__()
            self.bn1, self.bn2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(features)
            self.conv1 = conv(channels, features, 3, stride)
            self.conv2 = conv(features, features, 3)
            self.convShortcut = None
            if channels != features:
                self.convShortcut = conv(channels, features, 1, stride)

        def forward(self, x):
            active = torch.relu(self.bn1(x))
            shortcut = self.convShortcut(active) if self.convShortcut else x
            return shortcut + self.conv2(torch.relu(self.bn2(self.conv1(active))))

    class Stage(nn.Module):
        def __init__(self, channels, features, stride):
            super().__init__()
            blocks = [Block(channels, features, stride)]
            blocks += [Block(features, features, 1) for _ in range((network.depth - 4) // 6 - 1)]
            self.layer = nn.Sequential(*blocks)

    class WideResNet(nn.Module):
        def __init__(self):
            super().__init__()
            widths = [16, *(16 * 2**i * network.widen_factor for i in range(3))]
            self.conv1 = conv(3, 16, 3)
            for i, stride in enumerate((1, 2, 2), start=1):
                setattr(self, f"block{i}", Stage(widths[i - 1], widths[i], stride))
            self.bn1 = nn.BatchNorm2d(widths[-1])
            self.fc = nn.Linear(widths[-1], network.num_classes)

        def forward(self, x):
            x = self.conv1((x - constants[0]) / constants[1])
            for stage in (self.block1, self.block2, self.block3):
                x = stage.layer(x)
            return self.fc(torch.relu(self.bn1(x)).mean((2, 3)))

    return WideResNet()
