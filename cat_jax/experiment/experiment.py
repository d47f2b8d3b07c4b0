"""An experiment: what a config means for a given data set."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from ml_collections import ConfigDict

from cat_jax import data
from cat_jax.attacks.named import NamedAttack
from cat_jax.errors import UsageError
from cat_jax.experiment.batch_statistics import check_batch_statistics
from cat_jax.experiment.evaluation_attacks import evaluation_attacks, evaluation_curve
from cat_jax.experiment.method import build_method
from cat_jax.experiment.network import build_networks, for_training
from cat_jax.experiment.optimizer import build_optimizer
from cat_jax.methods import Method
from cat_jax.step.phases import Phases
from cat_jax.step.skipping import skip_non_finite
from cat_jax.step.state import TrainState, init_network, variables_of
from cat_jax.step.train_step import PARALLEL, StepFn, make_train_step, several

AUGMENTATIONS: dict[str, data.Augment] = {
    "none": data.unchanged,
    "crop_flip": data.crop_flip,
    "crop_flip_zero": functools.partial(data.crop_flip, mode="constant"),
}


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What a config means for a given data set; no arrays but the data.

    Attributes:
      config: as `settings.resolve` left it.
      num_steps: of the complete run.
      steps_per_call: config.steps_per_dispatch, as far as there are so many steps between two lines
        of the log or two checkpoints: batches of more would only take memory.
      init: () -> the state before the first step.
      step_fn: Algorithm 1 on all devices: (state, batch, key) -> (state, metrics). With
        steps_per_call above 1, as `step.train_step.several` has it.
      learning_rate: step -> rate of the classifier's optimizer.
      classifier: images -> logits.
      mask_net: images and delta -> mask.
      method: the training attack and the losses.
      phases: what the step is made of, for those who look at its parts.
      augment: of the training images, the first thing in a step.
      attacks: what the trained classifier is tested by.
      curve: attack and radii of accuracy against epsilon; None: it is not measured.
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
    attacks: list[NamedAttack]
    curve: tuple[NamedAttack, list[float]] | None

    def begin(self) -> TrainState:
        """`init()`, the same bits, compiled in a quarter of the time: a long program, run once."""
        return jax.jit(self.init, compiler_options={"xla_backend_optimization_level": 0})()


def build_experiment(config: ConfigDict, spec: data.Spec, devices: list[jax.Device]) -> Experiment:
    """The parts of the experiment of a resolved config, on `devices`.

    Raises:
      UsageError: for names that are unknown and sizes that do not fit.
    """
    share = len(devices) * config.num_parts
    if config.batch_size % share:
        parts = f" in {config.num_parts} parts each" if config.num_parts > 1 else ""
        raise UsageError(
            f"Batch size {config.batch_size} does not divide over {len(devices)} devices{parts}; "
            f"set config.batch_size to a multiple of {share}."
        )
    num_train = spec.num_train - config.num_validation
    if num_train < 1:
        raise UsageError(
            f"config.num_validation is {config.num_validation}; {config.dataset} has "
            f"{spec.num_train} training examples: expected fewer."
        )
    clock = data.Clock(num_train, config.batch_size)
    method = build_method(config, clock)
    classifier, mask_net = build_networks(config, spec)
    check_batch_statistics(config, classifier, mask_net, spec.image_shape, len(devices))
    (theta_tx, rate), (phi_tx, _) = (
        build_optimizer(settings, clock, config.num_epochs)
        for settings in (config.optimizer, config.mask_optimizer)
    )

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
            average=variables_of(theta) if config.average_decay else {},
        )

    augment = AUGMENTATIONS[config.augment]
    trained = for_training(config, classifier), for_training(config, mask_net)
    step = make_train_step(
        method,
        *trained,
        theta_tx,
        phi_tx,
        augment,
        num_parts=config.num_parts,
        average_decay=config.average_decay,
    )
    if config.non_finite == "skip":
        step = skip_non_finite(step)
    num_steps = config.num_steps or clock.steps_until(config.num_epochs)
    together = min(config.steps_per_dispatch, config.log_every, config.save_every, num_steps)
    if together > 1:
        step = several(step)
    return Experiment(
        config,
        num_steps,
        together,
        jax.jit(init),
        PARALLEL[config.parallel](step, devices),
        rate,
        classifier,
        mask_net,
        method,
        Phases(method, *trained, theta_tx, phi_tx, config.num_parts),
        augment,
        evaluation_attacks(config),
        evaluation_curve(config),
    )
