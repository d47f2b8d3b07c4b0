"""Classifier and mask network of a config."""

from typing import Any, TypeVar

import jax.numpy as jnp
from flax import linen as nn
from ml_collections import ConfigDict

from cat_jax import data
from cat_jax.errors import UsageError
from cat_jax.experiment.settings import chosen_fields
from cat_jax.networks import Classifier, MaskNet, Network, OnesMask
from cat_jax.runtime.registry import find, records_of
from cat_jax.types import DEVICES

N = TypeVar("N", bound=Network)
PRECISIONS = {"float32": None, "bfloat16": jnp.bfloat16}  # None: dtype of the images.


def build_networks(config: ConfigDict, spec: data.Spec) -> tuple[nn.Module, nn.Module]:
    """Classifier and mask network of a resolved config.

    Raises:
      UsageError: for unknown names, and images that a network does not accept.
    """
    shared = {"axis_name": DEVICES if config.sync_batch_norm else None}
    record = _record(Classifier, "classifier", config, spec)
    arguments = chosen_fields(config.classifier, "classifier", record.fields)
    if "mean" in record.takes:
        arguments |= _normaliser(config.classifier, spec.image_shape)
    elif config.classifier.normalize and (config.classifier.mean or config.classifier.std):
        raise UsageError(
            f"{record.name} accepts no config.classifier.mean and std; leave them empty, or set "
            "config.classifier.normalize to False."
        )
    classifier = record.build(num_classes=spec.num_classes, **arguments, **shared)

    mask = _record(MaskNet, "mask_net", config, spec)
    arguments = chosen_fields(config.mask_net, "mask_net", mask.fields)
    return classifier, mask.build(sees=config.mask_net.sees, **arguments, **shared)


def for_training(config: ConfigDict, module: nn.Module) -> nn.Module:
    """The network with the precision and the recomputation of training steps."""
    if isinstance(module, OnesMask):
        return module
    dtype = PRECISIONS[config.precision]
    name = type(module).__name__
    if config.remat and not hasattr(module, "remat"):
        raise UsageError(f"{name} has no blocks to recompute; set config.remat to False.")
    if dtype is not None and not hasattr(module, "dtype"):
        raise UsageError(
            f"{name} has no field dtype, which config.precision sets; set that to float32."
        )
    changes: dict[str, Any] = {} if dtype is None else {"dtype": dtype}
    changes |= {"remat": True} if config.remat else {}
    return module.clone(**changes) if changes else module


def _record(kind: type[N], section: str, config: ConfigDict, spec: data.Spec) -> N:
    """The record that a section of the config names."""
    field = f"config.{section}.name"
    record = find(kind, field, config[section].name)
    height, width = spec.image_shape[:2]

    def fits(network: Network) -> bool:
        return height % network.multiple == width % network.multiple == 0

    if not fits(record):
        names = [network.name for network in records_of(kind).values() if fits(network)]
        raise UsageError(
            f"{field} is {record.name}, which requires images with sides that are multiples of "
            f"{record.multiple}; the images are {height}x{width}: resize them, or choose "
            f"{' or '.join(names)}{' (OnesMask: no mask)' if 'OnesMask' in names else ''}."
        )
    return record


def _normaliser(settings: ConfigDict, image_shape: tuple[int, ...]) -> dict[str, tuple[float, ...]]:
    mean, std = tuple(settings.mean), tuple(settings.std)
    if not settings.normalize:
        return {}
    if len(mean) != len(std) or len(mean) not in (0, image_shape[-1]):
        raise UsageError(
            f"config.classifier.mean has {len(mean)} values and std {len(std)}; "
            f"expected {image_shape[-1]} each, one a channel, or none."
        )
    return {"mean": mean, "std": std}
