"""Classifier and mask network of a config."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from ml_collections import ConfigDict

from cat_jax import data, networks
from cat_jax.errors import UsageError, check_choice
from cat_jax.types import DEVICES

CLASSIFIERS: dict[str, Callable[..., nn.Module]] = {
    "SmallCNN": networks.SmallCNN,
    "PreActResNet18": networks.PreActResNet18,
    "WideResNet": networks.WideResNet,
    "ResNet18": networks.ResNet18,
}
MASK_NETS: dict[str, Callable[..., nn.Module]] = {
    "SmallMask": networks.SmallMask,
    "ResNetMask": networks.ResNetMask,
    "OnesMask": networks.OnesMask,
}
PRECISIONS = {"float32": None, "bfloat16": jnp.bfloat16}  # None: that of the images.
# What they halve and double again has to come out even. Other networks take images of any size.
SIDES = {"SmallMask": 2, "ResNetMask": 8}
WITH_BATCH_NORM = {"PreActResNet18", "WideResNet", "ResNet18", "ResNetMask"}


def build_networks(config: ConfigDict, spec: data.Spec) -> tuple[nn.Module, nn.Module]:
    """Classifier and mask network.

    Raises:
      UsageError: for names that are unknown, and images that a network does not take.
    """
    name = check_choice("config.classifier.name", config.classifier.name, CLASSIFIERS)
    kwargs: dict[str, Any] = {"num_classes": spec.num_classes}
    axis_name = DEVICES if config.sync_batch_norm else None
    if name in WITH_BATCH_NORM:
        kwargs |= dict(axis_name=axis_name, **_normaliser(config.classifier, spec.image_shape))
    elif config.classifier.mean or config.classifier.std:
        raise UsageError(f"{name} takes no config.classifier.mean and std; leave them empty.")
    if name == "WideResNet":
        size = config.classifier
        kwargs |= dict(depth=size.depth, widen_factor=size.widen_factor)
    classifier = CLASSIFIERS[name](**kwargs)

    name = check_choice("config.mask_net.name", config.mask_net.name, MASK_NETS)
    _check_sides(name, spec.image_shape)
    kwargs = {} if name == "OnesMask" else {"sees": config.mask_net.sees}
    if name in WITH_BATCH_NORM:
        kwargs["axis_name"] = axis_name
    return classifier, MASK_NETS[name](**kwargs)


def for_training(config: ConfigDict, module: nn.Module) -> nn.Module:
    """The network as a training step computes it: config.precision, config.remat."""
    dtype = PRECISIONS[check_choice("config.precision", config.precision, PRECISIONS)]
    name = type(module).__name__
    changes: dict[str, Any] = {}
    if dtype is not None:
        changes["dtype"] = dtype
    if config.remat:
        changes["remat"] = True
    if name == "OnesMask" or not changes:
        return module
    if config.remat and name not in WITH_BATCH_NORM:
        raise UsageError(f"{name} has no blocks to recompute; leave config.remat at False.")
    return module.clone(**changes)


def _check_sides(name: str, image_shape: tuple[int, ...]) -> None:
    height, width = image_shape[:2]
    multiple = SIDES.get(name, 1)
    if height % multiple or width % multiple:
        others = [other for other in MASK_NETS if not height % SIDES.get(other, 1)]
        raise UsageError(
            f"config.mask_net.name is {name}, whose images have sides that are multiples of "
            f"{multiple}, and these are {height}x{width}; resize them, or take "
            f"{' or '.join(others)} (OnesMask: no mask)."
        )


def _normaliser(settings: ConfigDict, image_shape: tuple[int, ...]) -> dict[str, tuple[float, ...]]:
    mean, std = tuple(settings.mean), tuple(settings.std)
    if not settings.normalize:
        return {}
    if len(mean) != len(std) or len(mean) not in (0, image_shape[-1]):
        raise UsageError(
            f"config.classifier.mean has {len(mean)} values and std {len(std)}; "
            f"expected {image_shape[-1]} each, one a channel, or none."
        )
    if any(not scale > 0 for scale in std):
        raise UsageError(f"config.classifier.std is {std}; expected numbers above 0.")
    return {"mean": mean, "std": std}
