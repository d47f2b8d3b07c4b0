"""Turns a resolved config into the parts of an experiment.

Here and in `settings.py` configs end: every other module takes plain arguments.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from ml_collections import ConfigDict

from cat_jax import attacks, data, methods, networks, objectives
from cat_jax.evaluate import NamedAttack
from cat_jax.methods import Method
from cat_jax.settings import radius
from cat_jax.state import TrainState, init_network, variables_of
from cat_jax.train_step import StepFn, make_train_step, pmap_step
from cat_jax.types import (
    DEVICES,
    Array,
    Attack,
    Loss,
    PyTree,
    Schedule,
    UsageError,
    check_choice,
)

Shape = tuple[int, int, int]
Steps = Callable[[tuple[int, ...]], Schedule]
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
# Each is given the method's settings, its attack, and `after`, which says how many of some
# epochs have begun.
METHODS: dict[str, Callable[[ConfigDict, Attack, Steps], Method]] = {
    "standard": lambda config, attack, after: methods.standard(),
    "at": lambda config, attack, after: methods.at(attack),
    "trades": lambda config, attack, after: methods.trades(attack, beta=config.method.beta),
    "fat": lambda config, attack, after: methods.fat(
        attack, beta=config.method.beta, tau=after(config.attack.tau_epochs)
    ),
    "mart": lambda config, attack, after: methods.mart(attack, weight=config.method.weight),
    "alp": lambda config, attack, after: _alp(config.method, attack),
    "mma": lambda config, attack, after: methods.mma(attack),
    "mma_anpgd": lambda config, attack, after: methods.mma_anpgd(
        attack, max_margin=radius("attack.epsilon", config.attack.epsilon)
    ),
    "cat": lambda config, attack, after: _cat(config.method, attack),
}
NATURAL = NamedAttack("natural", None)
AUGMENTATIONS: dict[str, data.Augment] = {
    "none": data.unchanged,
    "crop_flip": data.crop_flip,
    "crop_flip_zero": functools.partial(data.crop_flip, mode="constant"),
}
STARTS = ("uniform", "gaussian")
SCHEDULES = ("drops", "cosine", "cyclic")
BATCH_NORM_MODES = ("inference", "training")
DECAYED: dict[str, Callable[[PyTree], PyTree] | None] = {
    "all": None,
    "kernels": lambda params: jax.tree.map(lambda leaf: leaf.ndim > 1, params),
}


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
      mask_net: images and delta -> mask.
      method: the training attack and the losses.
    """

    config: ConfigDict
    num_steps: int
    init: Callable[[], TrainState]
    step_fn: StepFn
    learning_rate: Callable[[Any], Any]
    classifier: nn.Module
    mask_net: nn.Module
    method: Method


def experiment(config: ConfigDict, spec: data.Spec, devices: list[jax.Device]) -> Experiment:
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
    (theta_tx, rate), (phi_tx, _) = (
        build_optimizer(settings, clock, config.num_epochs)
        for settings in (config.optimizer, config.mask_optimizer)
    )

    def init() -> TrainState:
        keys = jax.random.split(jax.random.key(config.seed))
        images = jnp.zeros((1, *spec.image_shape))
        theta = init_network(classifier, theta_tx, keys[0], images)
        phi = init_network(mask_net, phi_tx, keys[1], images, images)
        return TrainState(
            jnp.int32(0),
            theta,
            phi,
            average=variables_of(theta) if config.average_decay else {},
            margins=jnp.zeros(num_train) if method.remembers_margins else {},
        )

    check_choice("config.augment", config.augment, AUGMENTATIONS)
    step = make_train_step(
        method,
        classifier,
        mask_net,
        theta_tx,
        phi_tx,
        AUGMENTATIONS[config.augment],
        num_parts=config.num_parts,
        average_decay=config.average_decay,
    )
    num_steps = config.num_steps or clock.steps_until(config.num_epochs)
    return Experiment(
        config,
        num_steps,
        jax.jit(init),
        pmap_step(step, devices),
        rate,
        classifier,
        mask_net,
        method,
    )


def build_networks(config: ConfigDict, spec: data.Spec) -> tuple[nn.Module, nn.Module]:
    """Classifier and mask network."""
    name = check_choice("config.classifier.name", config.classifier.name, CLASSIFIERS)
    kwargs: dict[str, Any] = {"num_classes": spec.num_classes}
    axis_name = DEVICES if config.sync_batch_norm else None
    if name in WITH_BATCH_NORM:
        kwargs |= dict(axis_name=axis_name, **_normaliser(config.classifier, spec.image_shape))
    elif config.classifier.mean or config.classifier.std:
        raise UsageError(f"{name} takes no config.classifier.mean and std; leave them empty.")
    classifier = CLASSIFIERS[name](**kwargs)

    name = check_choice("config.mask_net.name", config.mask_net.name, MASK_NETS)
    kwargs = {} if name == "OnesMask" else {"sees": config.mask_net.sees}
    if name in WITH_BATCH_NORM:
        kwargs["axis_name"] = axis_name
    return classifier, MASK_NETS[name](**kwargs)


def build_method(config: ConfigDict, clock: data.Clock) -> Method:
    """The method of `config.method`, with its training attack and weight perturbation."""
    name = check_choice("config.method.name", config.method.name, METHODS)
    masked = config.mask_net.name != "OnesMask"
    if name != "cat" and masked:
        raise UsageError(
            f"config.method.name is {name!r}, which has no mask network; "
            "set config.mask_net.name to OnesMask."
        )

    def after(epochs: tuple[int, ...]) -> Schedule:
        """How many of `epochs` have begun."""
        starts = np.array([clock.steps_until(epoch) for epoch in epochs], np.int32)
        return lambda step: jnp.sum(step >= starts)

    method = METHODS[name](config, build_attack(config.attack, name), after)
    training = _is_training("attack.batch_norm", config.attack.batch_norm)
    method = dataclasses.replace(method, train_mode_attack=training)
    if gamma := config.awp.gamma:
        begun = after((config.awp.warmup_epochs,))
        method = dataclasses.replace(method, weight_perturbation=lambda step: gamma * begun(step))
    return method if masked else methods.without_mask(method)


def build_attack(settings: ConfigDict, method: str) -> Attack:
    """The training attack that a method asks for: PGD on a loss, or a relative of it."""
    loss = check_choice("config.attack.loss", settings.loss, ATTACK_LOSSES)
    epsilon = radius("attack.epsilon", settings.epsilon)
    hyper: dict[str, Any] = dict(
        num_steps=settings.num_steps, pixel_range=(0.0, 1.0) if settings.clip else None
    )
    if method == "mma_anpgd":
        least = radius("attack.min_epsilon", settings.min_epsilon)
        hyper |= dict(min_epsilon=least, max_epsilon=epsilon)
        return functools.partial(attacks.an_pgd_with_state, **hyper)
    hyper |= dict(
        epsilon=epsilon,
        step_size=radius("attack.step_size", settings.step_size),
        loss=ATTACK_LOSSES[loss](settings),
    )
    friendly = method == "fat"
    pgd = attacks.friendly_pgd_with_state if friendly else attacks.pgd_with_state
    attack: Any = functools.partial(pgd, **hyper)
    start = radius("attack.start_radius", settings.start_radius)
    if check_choice("config.attack.start", settings.start, STARTS) == "gaussian":
        spread = radius("attack.start_std", settings.start_std)
        attack = attacks.starting_at(attack, attacks.gaussian_start(spread))
    elif start in (0.0, epsilon):
        attack = functools.partial(attack, random_start=start > 0)
    else:
        attack = attacks.starting_at(attack, attacks.uniform_start(start))
    if settings.closing_forward:
        attack = attacks.closing_forward(attack)
    return attack


def _is_training(field: str, mode: str) -> bool:
    return check_choice(f"config.{field}", mode, BATCH_NORM_MODES) == "training"


def _alp(settings: ConfigDict, attack: Attack) -> Method:
    return methods.alp(
        attack,
        weight=settings.weight,
        natural_weight=settings.natural_weight,
        adversarial_weight=settings.adversarial_weight,
        pairing=settings.pairing,
    )


def _cat(settings: ConfigDict, attack: Attack) -> Method:
    method = methods.cat(
        attack,
        beta=settings.beta,
        beta1=settings.beta1,
        weighted=settings.weighted,
        kl_p=settings.kl_p,
        certain=settings.certain,
    )
    return dataclasses.replace(
        method,
        train_mode_mask_loss=_is_training(
            "method.mask_loss_batch_norm", settings.mask_loss_batch_norm
        ),
        closing_views=("natural",) if settings.closing_forward else (),
    )


def build_optimizer(
    settings: ConfigDict, clock: data.Clock, num_epochs: int
) -> tuple[optax.GradientTransformation, optax.Schedule]:
    """Optimizer with its schedule, and that schedule: step -> learning rate.

    Weight decay is coupled, as PyTorch's: added to the gradient before momentum.
    """
    check_choice("optimizer.name", settings.name, ("sgd", "adam"))
    of_epoch = _rate(settings, num_epochs)
    per = check_choice("optimizer.per", settings.per, ("epoch", "iteration"))
    at = clock.epoch_of if per == "epoch" else clock.epochs_after

    def rate(step: Any) -> Any:
        return of_epoch(at(step))

    if settings.name == "adam":
        tx = optax.adam(rate)
    else:
        tx = optax.sgd(rate, momentum=settings.momentum or None)
    decayed = DECAYED[check_choice("optimizer.decay", settings.decay, DECAYED)]
    return optax.chain(optax.add_decayed_weights(settings.weight_decay, decayed), tx), rate


def _rate(settings: ConfigDict, num_epochs: int) -> Schedule:
    """Learning rate as a function of the epoch, which may be fractional."""
    schedule = check_choice("optimizer.schedule", settings.schedule, SCHEDULES)
    peak = settings.learning_rate
    if schedule == "cosine":
        return optax.cosine_decay_schedule(peak, num_epochs)
    if schedule == "cyclic":
        ends = np.array([0.0, 0.4 * num_epochs, num_epochs])
        return lambda epoch: jnp.interp(epoch, ends, np.array([0.0, peak, 0.0]))
    epochs, factors = settings.drop_epochs, settings.drop_factors
    if len(factors) not in (1, len(epochs)):
        raise UsageError(
            f"optimizer.drop_factors has {len(factors)} values for {len(epochs)} drop_epochs; "
            "expected one for all drops, or one for each."
        )
    factors = factors * len(epochs) if len(factors) == 1 else factors
    return optax.piecewise_constant_schedule(peak, dict(zip(epochs, factors, strict=True)))


def validation_attacks(config: ConfigDict) -> tuple[NamedAttack, NamedAttack]:
    """PGD, whose accuracy, added to the natural one, chooses best/; and FGSM.

    Where a classifier withstands the second but not the first, it defends against one step only.
    """
    settings = config.validation
    epsilon = radius("validation.epsilon", settings.epsilon)
    both: dict[str, Any] = dict(epsilon=epsilon, pixel_range=(0.0, 1.0) if settings.clip else None)
    pgd = functools.partial(
        attacks.pgd,
        step_size=radius("validation.step_size", settings.step_size),
        num_steps=settings.num_steps,
        random_start=settings.random_start,
        **both,
    )
    fgsm = functools.partial(attacks.fgsm, **both)
    return (
        NamedAttack(f"pgd{settings.num_steps}", pgd, epsilon, settings.clip),
        NamedAttack("fgsm", fgsm, epsilon, settings.clip),
    )


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
    restarted = attacks.restarts(pgd(40, random_start=True), settings.num_restarts)
    many_starts = [
        NamedAttack(f"pgd40_restarts{settings.num_restarts}", restarted, epsilon)
        for _ in range(settings.num_restarts > 0)
    ]
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
            *many_starts,
        ],
    }
    return suites[config.evaluation]


def _normaliser(settings: ConfigDict, image_shape: Shape) -> dict[str, tuple[float, ...]]:
    mean, std = tuple(settings.mean), tuple(settings.std)
    if not settings.normalize:
        return {}
    if len(mean) != len(std) or len(mean) not in (0, image_shape[-1]):
        raise UsageError(
            f"config.classifier.mean has {len(mean)} values and std {len(std)}; "
            f"expected {image_shape[-1]} each, one a channel, or none."
        )
    return {"mean": mean, "std": std}
