"""The attacks of validation and of the tables, ready to run."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from cat_jax import attacks
from cat_jax.attacks.named import NamedAttack
from cat_jax.errors import UsageError
from cat_jax.experiment import suites
from cat_jax.experiment.listed_attack import Listed
from cat_jax.runtime.registry import EvaluationAttack, plugins_of, records_of
from cat_jax.types import Array

NATURAL = NamedAttack("natural", None)


def validation_attacks(config: ConfigDict) -> tuple[NamedAttack, NamedAttack]:
    """PGD, whose accuracy plus natural accuracy chooses best/; and FGSM.

    A classifier that withstands FGSM but not PGD defends against a single step only.
    """
    settings = config.validation
    ball: dict[str, Any] = dict(epsilon=settings.epsilon, norm=settings.norm)
    ball |= dict(pixel_range=(0.0, 1.0) if settings.clip else None)
    pgd = functools.partial(
        attacks.pgd,
        step_size=settings.step_size,
        num_steps=settings.num_steps,
        random_start=settings.random_start,
        **ball,
    )
    fgsm = functools.partial(attacks.fgsm, **ball)
    return (
        NamedAttack(f"pgd{settings.num_steps}", pgd, queries=settings.num_steps),
        NamedAttack("fgsm", fgsm),
    )


def evaluation_attacks(config: ConfigDict) -> list[NamedAttack]:
    """The attacks that `config.evaluation` names, each after the one that it follows.

    Raises:
      UsageError: for a name that is neither a suite nor an attack.
    """
    precision = config.test.search_precision
    named: dict[str, NamedAttack] = {}
    for listed in suites.listed(config):
        if listed.worst_of:
            members = tuple(named[name] for name in listed.worst_of)
            named[listed.name] = NamedAttack(listed.name, None, worst_of=members)
        else:
            named[listed.name] = _build(listed, named.get(listed.after), precision)
    return list(named.values())


def evaluation_curves(config: ConfigDict, num_pixels: int) -> list[tuple[NamedAttack, list[float]]]:
    """The attacks of accuracy against epsilon and their radii, if `config.evaluation` asks."""
    curves, precision = suites.curves(config, num_pixels), config.test.search_precision
    return [(_build(listed, None, precision), radii) for listed, radii in curves]


def _build(listed: Listed, after: NamedAttack | None, precision: str) -> NamedAttack:
    if not listed.function:
        return NATURAL
    record = records_of(EvaluationAttack).get(listed.function)
    function = record.attack if record else getattr(attacks, listed.function)
    attack: Any = functools.partial(function, **listed.arguments)
    if listed.num_restarts:
        attack = attacks.restarts(attack, listed.num_restarts)
    if precision != "float32":
        attack = attacks.at_precision(attack, precision)
    if ":" in listed.name:
        _try(listed.name, attack)
    plugins = plugins_of(record) if record else {}
    return NamedAttack(listed.name, attack, after, listed.queries, plugins)


def _try(word: str, attack: Callable[..., Any]) -> None:
    """Traces an attack whose arguments the user has named, since training comes before it.

    Raises:
      UsageError: for an argument that the attack does not have, or a value that it does not take.
    """

    def logits_fn(images: Array) -> Array:
        return jnp.zeros((len(images), 1000)) + images.sum()

    shapes = (jnp.zeros((1, 2, 2, 1)), jnp.zeros(1, jnp.int32), jax.random.key(0))
    try:
        jax.eval_shape(functools.partial(attack, logits_fn), *shapes)
    except (UsageError, TypeError) as error:
        raise UsageError(f"config.evaluation has {word!r}: {error}") from error
