"""Floating-point operations of a step: by hand from the shapes of the layers, and by XLA.

By hand, a multiply-add of a convolution or a dense layer is two operations, zeros around an image
are counted as pixels, and nothing else counts. The gradient by a layer's inputs costs as much as
its forward pass, and so does that by its weights.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from ml_collections import ConfigDict

from cat_jax import data
from cat_jax.experiment.experiment import Experiment, build_experiment
from cat_jax.networks.conv import Conv


class Layer(NamedTuple):
    """A convolution or a dense layer, and the shapes that it met."""

    name: str
    inputs: tuple[int, ...]
    kernel: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def flops(self) -> int:
        """Of its forward pass; an upsampled pixel has its products once."""
        pixels = min(math.prod(shape[:-1]) for shape in (self.inputs, self.outputs))
        return 2 * math.prod(self.kernel) * pixels


class Work(NamedTuple):
    """Operations by what they are for."""

    forward: float = 0
    input_gradient: float = 0
    weight_gradient: float = 0

    def plus(self, other: "Work") -> "Work":
        """Both together."""
        return Work(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: float) -> "Work":
        """So many times."""
        return Work(*(factor * value for value in self))


def layers(module: nn.Module, *inputs: jax.ShapeDtypeStruct) -> list[Layer]:
    """The convolutions and dense layers of a network, in the order in which it runs them."""
    found = []

    def record(call, args, kwargs, context):  # type: ignore[no-untyped-def]
        output = call(*args, **kwargs)
        if isinstance(context.module, (Conv, nn.Dense)) and context.method_name == "__call__":
            kernel = context.module.variables["params"]["kernel"].shape
            name = "/".join(context.module.path)
            found.append(Layer(name, args[0].shape, kernel, output.shape))
        return output

    with nn.intercept_methods(record):
        jax.eval_shape(module.init, jax.random.key(0), *inputs)
    return found


def by_hand(experiment: Experiment, image_shape: tuple[int, ...]) -> dict[str, Work]:
    """Operations of each phase of a step, over the global batch.

    A view that a method names twice counts once: its second forward gives the same logits.
    """
    config, method = experiment.config, experiment.method
    image = jax.ShapeDtypeStruct((1, *image_shape), jnp.float32)
    f, g = layers(experiment.classifier, image), layers(experiment.mask_net, image, image)
    (all_f, first_f), (all_g, first_g) = map(_sums, (f, g))

    def views(names: tuple[str, ...]) -> int:
        return len(set(names))

    forwards, gradients = _attack_passes(config)
    attack = Work(forwards * all_f + all_g, gradients * all_f)
    # The first layer's inputs are the images, which need no gradient.
    theta = Work(all_f, all_f - first_f, all_f).times(views(method.classifier_views))
    phi = Work()
    if method.mask_views:
        phi = Work(all_g, all_g - first_g, all_g)
        # Of the views, the calibrated one depends on phi.
        phi = phi.plus(Work(views(method.mask_views) * all_f, all_f))
    work = {
        "attack": attack,
        "theta": theta.times(2 if method.weight_perturbation else 1),
        "phi": phi,
        "closing": Work(views(method.closing_views) * all_f),
    }
    return {phase: one.times(config.batch_size) for phase, one in work.items()}


def _sums(found: list[Layer]) -> tuple[int, int]:
    each = [layer.flops for layer in found]
    return sum(each), each[0] if each else 0


def _attack_passes(config: ConfigDict) -> tuple[int, int]:
    """Forward passes of f in the training attack, and gradients by its images."""
    num_steps = config.attack.num_steps
    if config.method.name == "standard":
        return 0, 0
    once = (config.attack.loss == "kl") + bool(config.attack.closing_forward)
    return num_steps + once, num_steps


def by_xla(
    experiment: Experiment, spec: data.Spec, devices: list[jax.Device], *arguments: object
) -> float | None:
    """Operations of a whole step by XLA's analysis of it as lowered; None if it does not say.

    It counts additions of any kind and the like too, and products with the zeros around an image
    not; on the CPU convolutions of many channels are lowered to fewer products. It counts the body
    of a loop once: a step without the attack's loop is lowered too, and the difference multiplied.
    """
    config = experiment.config.copy_and_resolve_references()
    with config.unlocked():
        config.attack.num_steps = 0
    without_loop = build_experiment(config, spec, devices)
    found = []
    for made in (without_loop, experiment):
        analysis = made.step_fn.lower(*arguments).cost_analysis()  # type: ignore[attr-defined]
        if not analysis or "flops" not in analysis:
            return None
        found.append(analysis["flops"])
    rest, once = found
    steps = experiment.config.attack.num_steps
    total = rest + steps * (once - rest)
    return float(total * len(devices) * experiment.config.num_parts)
