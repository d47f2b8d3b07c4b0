"""Refuses an experiment in which batch norm would get a single value per channel."""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn
from ml_collections import ConfigDict

from cat_jax.errors import UsageError
from cat_jax.networks.record import training_mode
from cat_jax.types import Array


def check_batch_statistics(
    config: ConfigDict,
    classifier: nn.Module,
    mask_net: nn.Module,
    image_shape: tuple[int, ...],
    num_devices: int,
) -> None:
    """Checks that each channel of each batch norm has a variance in a training step.

    Two images are always enough. One image is enough unless a network reduces it to one pixel.

    Args:
      config: the resolved config.
      classifier, mask_net: f and g.
      image_shape: (H, W, C).
      num_devices: D, over all processes.

    Raises:
      UsageError: naming the network, and what to change.
    """
    synced = num_devices if config.sync_batch_norm else 1
    num_images = config.batch_size // (num_devices * config.num_parts) * synced
    if num_images > 1:
        return
    image = jax.ShapeDtypeStruct((1, *image_shape), jnp.float32)
    for module, inputs in ((classifier, [image]), (mask_net, [image, image])):
        try:
            jax.eval_shape(functools.partial(_forward, module), *inputs)
        except UsageError as error:
            remedies = [f"config.batch_size to {2 * config.batch_size} or more"]
            remedies += ["config.num_parts to 1"] if config.num_parts > 1 else []
            remedies += ["config.sync_batch_norm to True"] if synced < num_devices else []
            raise UsageError(
                f"{type(module).__name__} computes batch statistics over one image at a time "
                f"(config.batch_size {config.batch_size}, {num_devices} devices, config.num_parts "
                f"{config.num_parts}), and some from one value per channel, which has no variance. "
                f"Set {' or '.join(remedies)}."
            ) from error


def _forward(module: nn.Module, *inputs: Array) -> object:
    """A forward pass in training mode on one device, for its shapes."""
    if hasattr(module, "axis_name"):
        module = module.clone(axis_name=None)
    variables = module.init(jax.random.key(0), *inputs)
    return module.apply(variables, *inputs, **training_mode(module), mutable=["batch_stats"])
