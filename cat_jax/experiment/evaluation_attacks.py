"""The attacks of validation and of the tables, ready to run."""

import functools
from typing import Any

from ml_collections import ConfigDict

from cat_jax import attacks
from cat_jax.attacks.named import NamedAttack
from cat_jax.experiment import suites
from cat_jax.experiment.suites import Listed
from cat_jax.runtime.registry import EvaluationAttack, plugins_of, records_of

NATURAL = NamedAttack("natural", None)


def validation_attacks(config: ConfigDict) -> tuple[NamedAttack, NamedAttack]:
    """PGD, whose accuracy, added to the natural one, chooses best/; and FGSM.

    Where a classifier withstands the second but not the first, it defends against one step only.
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
    """The attacks that `config.evaluation` names, each behind the one that it follows.

    Raises:
      UsageError: for a name that is neither a suite nor an attack.
    """
    named: dict[str, NamedAttack] = {}
    for listed in suites.listed(config):
        named[listed.name] = _build(listed, named.get(listed.after))
    return list(named.values())


def evaluation_curve(config: ConfigDict) -> tuple[NamedAttack, list[float]] | None:
    """The attack of accuracy against epsilon, and the radii, if `config.evaluation` names it."""
    if (curve := suites.curve(config)) is None:
        return None
    listed, radii = curve
    return _build(listed, None), radii


def _build(listed: Listed, after: NamedAttack | None) -> NamedAttack:
    if not listed.function:
        return NATURAL
    record = records_of(EvaluationAttack).get(listed.function)
    function = record.attack if record else getattr(attacks, listed.function)
    attack: Any = functools.partial(function, **listed.arguments)
    if listed.num_restarts:
        attack = attacks.restarts(attack, listed.num_restarts)
    plugins = plugins_of(record) if record else {}
    return NamedAttack(listed.name, attack, after, listed.queries, plugins)
