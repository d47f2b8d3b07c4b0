"""A classifier as PyTorch code and weights that need no cat_jax."""

import ast
import importlib.resources
from collections.abc import Mapping
from typing import Any

import numpy as np

from cat_jax import __version__
from cat_jax.errors import UsageError
from cat_jax.networks.record import named
from cat_jax.weights import pytorch_names
from cat_jax.weights.loading import Loaded
from cat_jax.weights.recognition import describe
from cat_jax.weights.trained import Trained

CLASS = '''"""{network}, trained by cat_jax {version} on {dataset}: {method}.

    model = load("{file}")  # Images [B, C, H, W] in [0, 1] -> logits [B, K].
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional


{classes}


class {name}({base}):
    """{network}, which normalises its images itself."""

    def __init__(self):
        super().__init__({arguments})
        self.register_buffer("mu", torch.zeros({channels}, 1, 1))
        self.register_buffer("sigma", torch.ones({channels}, 1, 1))

    def forward(self, images):
        """Images [B, C, H, W] in [0, 1] -> logits [B, K]."""
        return super().forward((images - self.mu) / self.sigma)


def load(file):
    """The network with the weights in a file, mu and sigma among them, in inference mode."""
    model = {name}()
    model.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    return model.eval()
'''


def state_dict(loaded: Loaded, channels: int) -> dict[str, np.ndarray]:
    """The entries of the network, with mu and sigma [C, 1, 1]; 0 and 1 if it normalises nothing."""
    mean = getattr(loaded.network, "mean", ()) or (0.0,) * channels
    std = getattr(loaded.network, "std", ()) or (1.0,) * channels
    constants = {
        name: np.asarray(values, np.float32).reshape(-1, 1, 1)
        for name, values in (("mu", mean), ("sigma", std))
    }
    return constants | pytorch_names.to_state_dict(loaded.network, loaded.variables)


def _definitions() -> dict[str, str]:
    """The source of each class in PyTorch, by its name, in the order of the file."""
    file = importlib.resources.files("cat_jax.weights") / "pytorch_classes.py"
    text = file.read_text(encoding="utf-8")
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    return {node.name: ast.get_source_segment(text, node) or "" for node in nodes}


def _needed(name: str, definitions: Mapping[str, str]) -> list[str]:
    """The names of a class and of those that it uses, in the order of the file."""
    names = {
        node.id for node in ast.walk(ast.parse(definitions[name])) if isinstance(node, ast.Name)
    }
    others = [_needed(other, definitions) for other in definitions if other in names - {name}]
    needed = {name, *(other for group in others for other in group)}
    return [other for other in definitions if other in needed]


def class_text(run: Trained, file: str, name: str) -> str:
    """The text of a Python file with the class of a run's classifier, and a function `load`.

    Args:
      run: networks of the run.
      file: name of the file of weights.
      name: name of the class.

    Raises:
      UsageError: for a network that has no class in PyTorch.
    """
    network, definitions = run.classifier.network, _definitions()
    record = named(run.config.classifier.name)
    base = record.name
    if record.state_dict is None or base not in definitions:
        available = [name for name in definitions if not name.endswith(("Block", "Stage"))]
        raise UsageError(
            f"{base} has no class in PyTorch; available: {', '.join(available)}. Use "
            "--format=safetensors."
        )
    arguments: dict[str, Any] = {"num_classes": getattr(network, "num_classes", 0)}
    arguments["image_shape"] = tuple(run.image_shape)
    arguments |= {field: getattr(network, field) for field in record.fields}
    return CLASS.format(
        network=describe(network),
        version=__version__,
        dataset=run.config.dataset,
        method=run.config.variant or run.config.method.name,
        file=file,
        classes="\n\n\n".join(definitions[name] for name in _needed(base, definitions)),
        name=name,
        base=base,
        arguments=", ".join(f"{name}={value!r}" for name, value in arguments.items()),
        channels=run.image_shape[-1],
    )
