"""An experiment: the objects that a config and a data set determine."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from ml_collections import ConfigDict

from cat_jax import data
from cat_jax.attacks.named import NamedAttack
from cat_jax.errors import UsageError
from cat_jax.experiment import schedules, suites
from cat_jax.experiment.batch_statistics import check_batch_statistics
from cat_jax.experiment.evaluation_attacks import evaluation_attacks, evaluation_curves
from cat_jax.experiment.method import build_method
from cat_jax.experiment.network import build_networks, for_training
from cat_jax.experiment.optimizer import build_optimizer
from cat_jax.methods import Method
from cat_jax.step.phases import Phases
from cat_jax.step.skipping import skip_non_finite
from cat_jax.step.state import TrainState, init_network, variables_of
from cat_jax.step.train_step import PARALLEL, StepFn, make_train_step, several
from cat_jax.types import Array, Schedule

AUGMENTATIONS: dict[str, data.Augment] = {
    "none": data.unchanged,
    "crop_flip": data.crop_flip,
    "crop_flip_zero": functools.partial(data.crop_flip, mode="constant"),
}


@dataclasses.dataclass(frozen=True)
class Experiment:
    """The objects that a config and a data set determine; it holds no arrays.

    Attributes:
      config: the resolved config.
      num_steps: number of steps of the complete run.
      steps_per_call: config.steps_per_dispatch, or the number of steps between two lines of the log
        or two checkpoints if that is smaller: batches for more steps would only take memory.
      init: () -> the state before the first step.
      step_fn: Algorithm 1 on all devices: (state, batch, key) -> (state, metrics). With
        steps_per_call above 1, as `step.train_step.several` has it.
      learning_rate: step -> learning rate of the classifier's optimizer.
      classifier: images -> logits.
      mask_net: images and delta -> mask.
      method: the training attack and the losses.
      phases: the parts of the step, for notebooks and benchmarks.
      augment: augmentation of the training images, the first operation of a step.
      average: step -> share of the old average of the classifier that remains; None: no average.
      attacks: attacks of the evaluation.
      curves: attacks of accuracy against epsilon, each with its radii.
      corruptions: whether the evaluation includes corrupted images.
    """

    config: ConfigDict
    num_steps: int
    steps_per_call: int
    init: Callable[[], TrainState]
    step_fn: StepFn
    learning_rate: Callable[[Any], Any]
    classifier: nn.Module
    mask_net: nn.Module
    method: Method
    phases: Phases
    augment: data.Augment
    average: Schedule | None
    attacks: list[NamedAttack]
    curves: list[tuple[NamedAttack, list[float]]]
    corruptions: bool

    def begin(self) -> TrainState:
        """Returns `init()`, up to rounding, with a faster compilation, because it runs once."""
        return jax.jit(self.init, compiler_options={"xla_backend_optimization_level": 0})()


def build_experiment(config: ConfigDict, spec: data.Spec, devices: list[jax.Device]) -> Experiment:
    """Builds the experiment of a resolved config on `devices`.

    Raises:
      UsageError: for unknown names and sizes that do not fit.
    """
    _check_sizes(config, spec, len(devices))
    clock = data.Clock(spec.num_train - config.num_validation, config.batch_size)
    method = build_method(config, clock)
    classifier, mask_net = build_networks(config, spec)
    check_batch_statistics(config, classifier, mask_net, spec.image_shape, len(devices))
    (theta_tx, rate), (phi_tx, _) = (
        build_optimizer(config[section], clock, config.num_epochs, section)
        for section in ("optimizer", "mask_optimizer")
    )

    average = schedules.average(config.average, clock)

    def init() -> TrainState:
        keys = jax.random.split(jax.random.key(config.seed))
        images = jnp.zeros((1, *spec.image_shape))
        logits = (1, spec.num_classes)
        theta = init_network(classifier, theta_tx, keys[0], images, output_shape=logits)
        phi = init_network(mask_net, phi_tx, keys[1], images, images, output_shape=images.shape)
        return TrainState(
            jnp.int32(0),
            theta,
            phi,
            average={} if average is None else variables_of(theta),
        )

    num_steps = config.num_steps or clock.steps_until(config.num_epochs)
    steps_per_call = min(config.steps_per_dispatch, config.log_every, config.save_every, num_steps)
    trained = for_training(config, classifier), for_training(config, mask_net)
    phases = Phases(method, *trained, theta_tx, phi_tx, config.num_parts)
    augment = _augment(config)
    step = _step(config, phases, augment, average, steps_per_call)
    return Experiment(
        config,
        num_steps,
        steps_per_call,
        jax.jit(init),
        PARALLEL[config.parallel](step, devices),
        rate,
        classifier,
        mask_net,
        method,
        phases,
        augment,
        average,
        evaluation_attacks(config),
        evaluation_curves(config, math.prod(spec.image_shape)),
        suites.has_corruptions(config),
    )


def _step(
    config: ConfigDict,
    phases: Phases,
    augment: data.Augment,
    average: Schedule | None,
    steps_per_call: int,
) -> StepFn:
    """The training step of these phases."""
    step = make_train_step(
        phases.method,
        phases.classifier,
        phases.mask_net,
        phases.classifier_tx,
        phases.mask_tx,
        augment,
        num_parts=phases.num_parts,
        cutmix=config.cutmix,
        average=average,
    )
    if config.non_finite == "skip":
        step = skip_non_finite(step)
    return several(step) if steps_per_call > 1 else step


def _augment(config: ConfigDict) -> data.Augment:
    """The augmentation of single images; CutMix needs two, and comes after it."""
    augment = AUGMENTATIONS[config.augment]
    if not config.erasing:
        return augment

    def erased(keys: Array, images: Array) -> Array:
        first, second = jnp.unstack(jax.vmap(jax.random.split)(keys), axis=1)
        return data.erase(second, augment(first, images), config.erasing)

    return erased


def _check_sizes(config: ConfigDict, spec: data.Spec, num_devices: int) -> None:
    """Raises UsageError for a batch or a validation split whose size does not fit."""
    divisor = num_devices * config.num_parts
    if config.batch_size % divisor:
        parts = f" in {config.num_parts} parts each" if config.num_parts > 1 else ""
        raise UsageError(
            f"Batch size {config.batch_size} does not divide over {num_devices} devices{parts}; "
            f"set config.batch_size to a multiple of {divisor}."
        )
    if config.extra_data.path:
        data.extra_images.number(config.extra_data.share, config.batch_size)
    if config.num_validation >= spec.num_train:
        raise UsageError(
            f"config.num_validation is {config.num_validation}; {config.dataset} has "
            f"{spec.num_train} training examples: expected fewer."
        )
