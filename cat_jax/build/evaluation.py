"""The attacks of validation and of the tables."""

import functools
from collections.abc import Callable
from typing import Any

from ml_collections import ConfigDict

from cat_jax import attacks
from cat_jax.evaluate import NamedAttack
from cat_jax.settings import radius
from cat_jax.types import Array

NATURAL = NamedAttack("natural", None)


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
