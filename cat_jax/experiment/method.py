"""The method of a config, with its training attack and weight perturbation."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from cat_jax import attacks, data, methods, objectives
from cat_jax.errors import UsageError, check_choice
from cat_jax.methods import Method
from cat_jax.types import Attack, Loss, Schedule

Steps = Callable[[tuple[int, ...]], Schedule]
ATTACK_LOSSES: dict[str, Callable[[ConfigDict], Loss]] = {
    "cross_entropy": lambda attack: objectives.adversarial_cross_entropy,
    "margin": lambda attack: objectives.AdversarialMargin(attack.kappa),
    "kl": lambda attack: objectives.adversarial_kl,
}
# Each is given the config, the attack, and `after`, which says how many of some epochs have begun.
METHODS: dict[str, Callable[[ConfigDict, Attack, Steps], Method]] = {
    "standard": lambda config, attack, after: methods.standard(),
    "at": lambda config, attack, after: methods.at(attack),
    "trades": lambda config, attack, after: methods.trades(attack, beta=config.method.beta),
    "mart": lambda config, attack, after: methods.mart(attack, weight=config.method.weight),
    "fat": lambda config, attack, after: _fat(config, attack, after),
    "alp": lambda config, attack, after: _alp(config.method, attack),
    "mma": lambda config, attack, after: methods.mma(attack),
    "cat": lambda config, attack, after: _cat(config.method, attack),
}


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

    method = METHODS[name](config, build_attack(config.attack), after)
    training = config.attack.batch_norm == "training"
    method = dataclasses.replace(method, train_mode_attack=training)
    if gamma := config.awp.gamma:
        begun = after((config.awp.warmup_epochs,))
        method = dataclasses.replace(method, weight_perturbation=lambda step: gamma * begun(step))
    return method if masked else methods.without_mask(method)


def build_attack(settings: ConfigDict) -> Attack:
    """The training attack: PGD on a loss, from a start."""
    loss, epsilon, start = settings.loss, settings.epsilon, settings.start_radius
    attack: Any = functools.partial(
        attacks.pgd_with_state,
        epsilon=epsilon,
        step_size=settings.step_size,
        num_steps=settings.num_steps,
        norm=settings.norm,
        loss=ATTACK_LOSSES[loss](settings),
        pixel_range=(0.0, 1.0) if settings.clip else None,
    )
    if settings.start == "gaussian":
        attack = attacks.starting_at(attack, attacks.gaussian_start(settings.start_std))
    elif loss == "kl" and start == 0:
        raise UsageError(
            "config.attack.start_radius is 0 and the loss kl, whose gradient at x is 0: the attack "
            "would go nowhere; set a radius, or config.attack.start to gaussian."
        )
    elif start in (0.0, epsilon):
        attack = functools.partial(attack, random_start=start > 0)
    elif settings.norm != "linf":
        raise UsageError(
            f"config.attack.start_radius is {start} and the norm {settings.norm}; expected 0 or "
            "epsilon, because only starts in the linf norm have a radius of their own."
        )
    else:
        attack = attacks.starting_at(attack, attacks.uniform_start(start))
    if settings.closing_forward:
        attack = attacks.closing_forward(attack)
    return attack


def _fat(config: ConfigDict, attack: Attack, after: Steps) -> Method:
    return methods.fat(attack, beta=config.method.beta, tau=after(config.attack.tau_epochs))


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
        train_mode_mask_loss=settings.mask_loss_batch_norm == "training",
        closing_views=("natural",) if settings.closing_forward else (),
    )
