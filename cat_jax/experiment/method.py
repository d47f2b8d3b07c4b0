"""The method of a config: its losses, its training attack, its weight perturbation."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from cat_jax import attacks, data, methods, objectives
from cat_jax.errors import UsageError
from cat_jax.experiment.limits import read_radius
from cat_jax.experiment.schedules import warmup
from cat_jax.experiment.settings import chosen_fields
from cat_jax.methods import Method, NamedMethod
from cat_jax.runtime.registry import find, register
from cat_jax.step.gradient_alignment import misalignment
from cat_jax.types import Apply, Array, Attack, Loss, Penalty, Schedule

ATTACK_LOSSES: dict[str, Callable[[ConfigDict], Loss]] = {
    "cross_entropy": lambda attack: objectives.adversarial_cross_entropy,
    "margin": lambda attack: objectives.AdversarialMargin(attack.kappa),
    "kl": lambda attack: objectives.adversarial_kl,
}


def method_record(name: str) -> NamedMethod:
    """The record of a method, ours or a plugin's; importing this module registers ours.

    Raises:
      UsageError: if there is none.
    """
    return find(NamedMethod, "config.method.name", name)


def build_method(config: ConfigDict, clock: data.Clock) -> Method:
    """The method of `config.method`, with its training attack and weight perturbation."""
    record = method_record(config.method.name)
    masked = config.mask_net.name != "OnesMask"

    def after(epochs: tuple[int, ...]) -> Schedule:
        """The number of `epochs` that have begun."""
        starts = np.array([clock.steps_until(epoch) for epoch in epochs], np.int32)
        return lambda step: jnp.sum(step >= starts)

    arguments = chosen_fields(config.method, "method", record.fields)
    for argument, epochs in record.epochs.items():
        arguments[argument] = after(_at(config, epochs) if isinstance(epochs, str) else epochs)
    if config.attack.union and "tau" in record.epochs:
        raise UsageError(
            f"config.attack.union is set and the method is {record.name}, whose attack stops early "
            "in one ball; choose another method, or leave union empty."
        )
    if config.attack.union and config.attack.warmup_epochs:
        raise UsageError(
            f"config.attack.warmup_epochs is {config.attack.warmup_epochs:g} and attack.union is "
            "set; expected 0, because only one radius can grow."
        )
    mixed = objectives.mixed if config.cutmix else lambda loss: loss
    method = record.make(build_attack(config.attack, mixed), **arguments)
    if config.cutmix and "tau" in method.schedules:
        raise UsageError(
            f"config.cutmix is {config.cutmix}; expected 0, because the attack of "
            f"{record.name} compares predictions with one label."
        )
    if masked and not method.mask_views:
        raise UsageError(
            f"config.method.name is {record.name!r}, which has no mask network; "
            "set config.mask_net.name to OnesMask."
        )
    training = config.attack.batch_norm == "training"
    method = dataclasses.replace(method, train_mode_attack=training)
    if config.attack.warmup_epochs:
        method = _with_growing_radius(method, config, clock)
    if smoothing := config.method.label_smoothing:
        loss = objectives.smoothed(method.classifier_loss, smoothing)
        method = dataclasses.replace(method, classifier_loss=loss)
    if config.method.grad_align:
        penalty = _grad_align(config, mixed(objectives.adversarial_cross_entropy))
        method = dataclasses.replace(method, penalty=penalty)
    if not masked:
        method = methods.without_mask(method)
    losses = mixed(method.classifier_loss), mixed(method.mask_loss)
    method = dataclasses.replace(method, classifier_loss=losses[0], mask_loss=losses[1])
    if gamma := config.awp.gamma:
        begun = after((config.awp.warmup_epochs,))
        method = dataclasses.replace(method, weight_perturbation=lambda step: gamma * begun(step))
    return method


def _grad_align(config: ConfigDict, loss: Loss) -> Penalty:
    """GradAlign in the ball of the training attack, times its weight."""
    ball = {"epsilon": config.attack.epsilon, "norm": config.attack.norm}

    def penalty(apply: Apply, state: Any, images: Array, labels: Any, keys: Array) -> Array:
        angles = misalignment(apply, state, images, labels, keys, loss=loss, **ball)
        return config.method.grad_align * angles

    return penalty


def _with_growing_radius(method: Method, config: ConfigDict, clock: data.Clock) -> Method:
    """The method with epsilon and step size of its attack multiplied by a warm-up."""
    factor = warmup(clock, config.attack.warmup_epochs)

    def grown(value: float) -> Schedule:
        return lambda step: value * factor(step)

    names = ("epsilon", "step_size")
    schedules = {name: grown(config.attack[name]) for name in names}
    return dataclasses.replace(method, schedules={**method.schedules, **schedules})


def build_attack(settings: ConfigDict, mixed: Callable[[Loss], Loss] = lambda loss: loss) -> Attack:
    """The training attack: PGD on a loss, from a start; `mixed` makes a loss of `MixedLabels`."""
    loss, epsilon, start = settings.loss, settings.epsilon, settings.start_radius
    attack: Any = functools.partial(
        attacks.union_with_state if settings.union else attacks.pgd_with_state,
        num_steps=settings.num_steps,
        loss=mixed(ATTACK_LOSSES[loss](settings)),
        pixel_range=(0.0, 1.0) if settings.clip else None,
        **_region(settings),
    )
    if settings.start == "gaussian":
        attack = attacks.starting_at(attack, attacks.gaussian_start(settings.start_std))
    elif loss == "kl" and start == 0:
        raise UsageError(
            "config.attack.start_radius is 0 and the loss kl, whose gradient at x is 0, so the "
            "attack would not move; set a radius, or config.attack.start to gaussian."
        )
    elif start in (0.0, epsilon):
        attack = functools.partial(attack, random_start=start > 0)
    elif settings.norm != "linf":
        raise UsageError(
            f"config.attack.start_radius is {start} and the norm {settings.norm}; expected 0 or "
            "epsilon, because only starts in the linf norm have their own radius."
        )
    else:
        attack = attacks.starting_at(attack, attacks.uniform_start(start))
    if settings.closing_forward:
        attack = attacks.closing_forward(attack)
    return attack


def _region(settings: ConfigDict) -> dict[str, Any]:
    """The arguments of the training attack that set its ball or balls."""
    ball = attacks.NormBall(settings.norm, settings.epsilon, settings.step_size)
    if not settings.union:
        return ball._asdict()
    balls = [ball]
    for norm, _, text in (value.partition(":") for value in settings.union):
        epsilon = read_radius("config.attack.union", text, norm)
        if not epsilon > 0:
            raise UsageError(f"config.attack.union has {norm}:{text}; expected a radius above 0.")
        balls.append(attacks.NormBall(norm, epsilon, ball.step_size / ball.epsilon * epsilon))
    return {"balls": tuple(balls), "combine": settings.combine}


def _at(config: ConfigDict, path: str) -> Any:
    for name in path.split("."):
        config = config[name]
    return config


def _standard(attack: Attack) -> Method:
    del attack
    return methods.standard()


def _cat(
    attack: Attack, *, mask_loss_batch_norm: str, closing_forward: bool, **arguments: Any
) -> Method:
    return dataclasses.replace(
        methods.cat(attack, **arguments),
        train_mode_mask_loss=mask_loss_batch_norm == "training",
        closing_views=("natural",) if closing_forward else (),
    )


register(
    NamedMethod("standard", _standard),
    NamedMethod("at", methods.at),
    NamedMethod("trades", methods.trades, ("beta",)),
    NamedMethod("mart", methods.mart, ("weight",)),
    NamedMethod("fat", methods.fat, ("beta",), epochs={"tau": "attack.tau_epochs"}),
    NamedMethod("alp", methods.alp, ("weight", "natural_weight", "adversarial_weight", "pairing")),
    NamedMethod("mma", methods.mma),
    NamedMethod(
        "cat",
        _cat,
        ("beta", "beta1", "weighted", "kl_p", "certain", "mask_loss_batch_norm", "closing_forward"),
    ),
)
