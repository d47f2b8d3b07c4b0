"""Turns a resolved config into the parts of an experiment.

Here and in `settings.py` configs end: every other module takes plain arguments.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from ml_collections import ConfigDict

from cat_jax import attacks, data, methods, networks, objectives
from cat_jax.evaluate import NamedAttack
from cat_jax.methods import Method
from cat_jax.settings import radius
from cat_jax.state import TrainState, init_network
from cat_jax.train_step import StepFn, make_train_step, pmap_step
from cat_jax.types import DEVICES, Array, Attack, Loss, UsageError, check_choice

Shape = tuple[int, int, int]
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
WITH_BATCH_NORM = {"PreActResNet18", "WideResNet", "ResNet18", "ResNetMask"}
ATTACK_LOSSES: dict[str, Callable[[ConfigDict], Loss]] = {
    "cross_entropy": lambda attack: objectives.adversarial_cross_entropy,
    "margin": lambda attack: objectives.AdversarialMargin(attack.kappa),
    "kl": lambda attack: objectives.adversarial_kl,
}
METHODS: dict[str, Callable[[ConfigDict, Attack], Method]] = {
    "standard": lambda config, attack: methods.standard(),
    "at": lambda config, attack: methods.at(attack),
    "cat": lambda config, attack: _cat(config.method, attack),
}
NATURAL = NamedAttack("natural", None)
AUGMENTATIONS: dict[str, data.Augment] = {"none": data.unchanged, "crop_flip": data.crop_flip}


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What a config means for a given data set; no arrays but the data.

    Attributes:
      config: as `settings.resolve` left it.
      num_steps: of the whole run.
      init: () -> the state before the first step.
      step_fn: Algorithm 1, pmapped: (state, batch, key) -> (state, metrics).
      learning_rate: step -> rate of the classifier's optimizer.
      classifier: images -> logits.
    """

    config: ConfigDict
    num_steps: int
    init: Callable[[], TrainState]
    step_fn: StepFn
    learning_rate: Callable[[Any], Any]
    classifier: nn.Module


def experiment(config: ConfigDict, spec: data.Spec, devices: list[jax.Device]) -> Experiment:
    """The parts of the experiment of a resolved config, on `devices`.

    Raises:
      UsageError: for names that are unknown and sizes that do not fit.
    """
    if config.batch_size % len(devices):
        raise UsageError(
            f"Batch size {config.batch_size} does not divide over {len(devices)} devices; "
            f"set config.batch_size to a multiple of {len(devices)}."
        )
    num_train = spec.num_train - config.num_validation
    if num_train < 1:
        raise UsageError(
            f"config.num_validation is {config.num_validation}; {config.dataset} has "
            f"{spec.num_train} training examples: expected fewer."
        )
    method = build_method(config)
    classifier, mask_net = build_networks(config, spec)
    (theta_tx, rate), (phi_tx, _) = (
        build_optimizer(settings, num_train, config.batch_size)
        for settings in (config.optimizer, config.mask_optimizer)
    )

    def init() -> TrainState:
        keys = jax.random.split(jax.random.key(config.seed))
        images = jnp.zeros((1, *spec.image_shape))
        theta = init_network(classifier, theta_tx, keys[0], images)
        phi = init_network(mask_net, phi_tx, keys[1], images, images)
        return TrainState(jnp.int32(0), theta, phi)

    check_choice("config.augment", config.augment, AUGMENTATIONS)
    augment = AUGMENTATIONS[config.augment]
    step = make_train_step(method, classifier, mask_net, theta_tx, phi_tx, augment)
    epochs = data.steps_until(config.num_epochs, num_train, config.batch_size)
    num_steps = config.num_steps or epochs
    return Experiment(config, num_steps, jax.jit(init), pmap_step(step, devices), rate, classifier)


def build_networks(config: ConfigDict, spec: data.Spec) -> tuple[nn.Module, nn.Module]:
    """Classifier and mask network."""
    name = check_choice("config.classifier.name", config.classifier.name, CLASSIFIERS)
    kwargs: dict[str, Any] = {"num_classes": spec.num_classes}
    if name in WITH_BATCH_NORM:
        kwargs |= dict(axis_name=DEVICES, **_normaliser(config.classifier, spec.image_shape))
    elif config.classifier.mean or config.classifier.std:
        raise UsageError(f"{name} takes no config.classifier.mean and std; leave them empty.")
    classifier = CLASSIFIERS[name](**kwargs)

    name = check_choice("config.mask_net.name", config.mask_net.name, MASK_NETS)
    kwargs = {} if name == "OnesMask" else {"sees": config.mask_net.sees}
    if name in WITH_BATCH_NORM:
        kwargs["axis_name"] = DEVICES
    return classifier, MASK_NETS[name](**kwargs)


def build_method(config: ConfigDict) -> Method:
    """The method of `config.method`, with its training attack."""
    name = check_choice("config.method.name", config.method.name, METHODS)
    if name != "cat" and config.mask_net.name != "OnesMask":
        raise UsageError(
            f"config.method.name is {name!r}, which has no mask network; "
            "set config.mask_net.name to OnesMask."
        )
    return METHODS[name](config, build_attack(config.attack))


def build_attack(settings: ConfigDict) -> Attack:
    """The training attack: PGD on a loss, from a uniform start."""
    loss = check_choice("config.attack.loss", settings.loss, ATTACK_LOSSES)
    epsilon = radius("attack.epsilon", settings.epsilon)
    start = radius("attack.start_radius", settings.start_radius)
    attack: Any = functools.partial(
        attacks.pgd_with_state,
        epsilon=epsilon,
        step_size=radius("attack.step_size", settings.step_size),
        num_steps=settings.num_steps,
        loss=ATTACK_LOSSES[loss](settings),
        random_start=start > 0,
        pixel_range=(0.0, 1.0) if settings.clip else None,
    )
    if start not in (0.0, epsilon):
        attack = attacks.starting_at(attack, attacks.uniform_start(start))
    if settings.closing_forward:
        attack = attacks.closing_forward(attack)
    return attack


def _cat(settings: ConfigDict, attack: Attack) -> Method:
    method = methods.cat(
        attack,
        beta=settings.beta,
        beta1=settings.beta1,
        kl_p=settings.kl_p,
        certain=settings.certain,
    )
    return dataclasses.replace(
        method,
        train_mode_attack=settings.train_mode_attack,
        train_mode_mask_loss=settings.train_mode_mask_loss,
        closing_views=("natural",) if settings.closing_forward else (),
    )


def build_optimizer(
    settings: ConfigDict, num_train: int, batch_size: int
) -> tuple[optax.GradientTransformation, optax.Schedule]:
    """Optimizer with its piecewise constant schedule, and that schedule.

    Weight decay is coupled, as PyTorch's: added to the gradient before momentum.
    """
    check_choice("optimizer.name", settings.name, ("sgd", "adam"))
    drops = {
        data.steps_until(epoch, num_train, batch_size): settings.drop_factor
        for epoch in settings.drop_epochs
    }
    rate = optax.piecewise_constant_schedule(settings.learning_rate, drops)
    if settings.name == "adam":
        tx = optax.adam(rate)
    else:
        tx = optax.sgd(rate, momentum=settings.momentum or None)
    return optax.chain(optax.add_decayed_weights(settings.weight_decay), tx), rate


def validation_attack(config: ConfigDict) -> NamedAttack:
    """The attack whose accuracy, added to the natural one, chooses best/."""
    settings = config.validation
    epsilon = radius("validation.epsilon", settings.epsilon)
    pgd = functools.partial(
        attacks.pgd,
        epsilon=epsilon,
        step_size=radius("validation.step_size", settings.step_size),
        num_steps=settings.num_steps,
        random_start=settings.random_start,
        pixel_range=(0.0, 1.0) if settings.clip else None,
    )
    return NamedAttack(f"pgd{settings.num_steps}", pgd, epsilon, settings.clip)


def evaluation_attacks(config: ConfigDict) -> list[NamedAttack]:
    """The attacks of `config.evaluation`, in the order of the paper's tables (sec. 5.3)."""
    settings = config.test
    epsilon, step_size = (
        radius(f"test.{field}", settings[field]) for field in ("epsilon", "step_size")
    )
    cw_epsilon = radius("test.cw_epsilon", settings.cw_epsilon)
    fixed = dict(epsilon=epsilon, step_size=step_size, random_start=False)

    def pgd(num_steps: int, **kwargs: Any) -> Callable[..., Array]:
        return functools.partial(attacks.pgd, num_steps=num_steps, **(fixed | kwargs))

    pgd20 = NamedAttack("pgd20", pgd(20), epsilon)
    pgd100 = NamedAttack("pgd100", pgd(100), epsilon)
    unclipped = [
        NamedAttack(f"pgd{steps}_unclipped", pgd(steps, pixel_range=None), epsilon, clipped=False)
        for steps in ((20, 100) if settings.unclipped else ())
    ]
    cw_inf = functools.partial(
        attacks.cw_linf,
        epsilon=cw_epsilon,
        step_size=step_size,
        num_steps=30,
        kappa=settings.cw_kappa,
        random_start=settings.cw_random_start,
    )
    suites = {
        "none": [],
        "quick": [NATURAL, pgd20, *unclipped[:1]],
        "paper": [
            NATURAL,
            NamedAttack("fgsm", functools.partial(attacks.fgsm, epsilon=epsilon), epsilon),
            pgd20,
            pgd100,
            NamedAttack("cw_inf", cw_inf, cw_epsilon),
            *unclipped,
        ],
    }
    return suites[config.evaluation]


def _normaliser(settings: ConfigDict, image_shape: Shape) -> dict[str, tuple[float, ...]]:
    mean, std = tuple(settings.mean), tuple(settings.std)
    if len(mean) != len(std) or len(mean) not in (0, image_shape[-1]):
        raise UsageError(
            f"config.classifier.mean has {len(mean)} values and std {len(std)}; "
            f"expected {image_shape[-1]} each, one a channel, or none."
        )
    return {"mean": mean, "std": std}
