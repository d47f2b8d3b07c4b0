"""The attacks of validation and of the tables, by name."""

import functools
from collections.abc import Callable
from typing import Any

from ml_collections import ConfigDict

from cat_jax import attacks
from cat_jax.attacks.named import NamedAttack
from cat_jax.errors import check_choice
from cat_jax.types import Array

NATURAL = NamedAttack("natural", None)


def validation_attacks(config: ConfigDict) -> tuple[NamedAttack, NamedAttack]:
    """PGD, whose accuracy, added to the natural one, chooses best/; and FGSM.

    Where a classifier withstands the second but not the first, it defends against one step only.
    """
    settings = config.validation
    epsilon = settings.epsilon
    both: dict[str, Any] = dict(epsilon=epsilon, pixel_range=(0.0, 1.0) if settings.clip else None)
    pgd = functools.partial(
        attacks.pgd,
        step_size=settings.step_size,
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
    """The attacks that `config.evaluation` names, each behind the one that it follows.

    Raises:
      UsageError: for a name that is neither a suite nor an attack.
    """
    paper, standard = _paper(config.test), _standard(config.test)
    known = {named.name: named for named in [NATURAL, *paper, *standard]}
    suites: dict[str, list[str]] = {
        "none": [],
        "quick": [name for name in ("natural", "pgd20", "pgd20_unclipped") if name in known],
        "paper": ["natural", *(named.name for named in paper)],
        "standard": ["natural", *(named.name for named in standard)],
    }
    chosen: dict[str, NamedAttack] = {}
    for word in config.evaluation.split(","):
        check_choice("config.evaluation", word, [*suites, *known])
        for name in suites.get(word, [word]):
            chain = [known[name]]
            while chain[0].after:
                chain.insert(0, known[chain[0].after])
            chosen |= {named.name: named for named in chain}
    return list(chosen.values())


def _paper(settings: ConfigDict) -> list[NamedAttack]:
    """The attacks of the paper's tables, in their order (sec. 5.1); then those it does not have."""
    epsilon, step_size, cw_epsilon = settings.epsilon, settings.step_size, settings.cw_epsilon
    fixed: dict[str, Any] = dict(epsilon=epsilon, step_size=step_size, random_start=False)

    def pgd(name: str, num_steps: int, **kwargs: Any) -> NamedAttack:
        attack = functools.partial(attacks.pgd, num_steps=num_steps, **(fixed | kwargs))
        clipped = kwargs.get("pixel_range", ()) is not None
        return NamedAttack(name, attack, epsilon, clipped, queries=num_steps)

    cw_inf = functools.partial(
        attacks.cw_linf,
        epsilon=cw_epsilon,
        step_size=step_size,
        num_steps=30,
        kappa=settings.cw_kappa,
        random_start=settings.cw_random_start,
    )
    made = [
        NamedAttack("fgsm", functools.partial(attacks.fgsm, epsilon=epsilon), epsilon),
        pgd("pgd20", 20),
        pgd("pgd100", 100),
        NamedAttack("cw_inf", cw_inf, cw_epsilon, queries=30),
        # It leaves what is wrong already, so that running it there would change nothing.
        NamedAttack("square", _square(epsilon, settings.num_queries), epsilon, after="natural"),
    ]
    if settings.unclipped:
        made += [pgd(f"pgd{n}_unclipped", n, pixel_range=None) for n in (20, 100)]
    if (num_restarts := settings.num_restarts) > 0:
        one = functools.partial(attacks.pgd, num_steps=40, **(fixed | dict(random_start=True)))
        attack = attacks.restarts(one, num_restarts)
        queries = num_restarts * (40 + 1)
        name = f"pgd40_restarts{num_restarts}"
        made.append(NamedAttack(name, attack, epsilon, queries=queries))
    return made


def _standard(settings: ConfigDict) -> list[NamedAttack]:
    """AutoAttack's cascade (`attacks.standard`). Its last member, Square, gives it its name."""
    epsilon = settings.epsilon
    found = attacks.standard_attacks(epsilon=epsilon)
    num_steps, num_targets = 100, 9
    # Forward passes: one on the natural images, then at each point, of which FAB looks at two.
    run = num_steps + 1
    queries = (1 + run, 1 + num_targets * run, 1 + num_targets * 2 * num_steps)
    names = ("apgd_ce", "apgd_t", "fab_t")
    afters = ("natural", *names)
    gradients = [
        NamedAttack(name, found[name], epsilon, after=after, queries=forwards)
        for name, after, forwards in zip(names, afters, queries, strict=False)
    ]
    square = _square(epsilon, settings.num_queries)
    return [*gradients, NamedAttack("standard", square, epsilon, after="fab_t")]


def _square(epsilon: float, num_queries: int) -> Callable[..., tuple[Array, Array]]:
    """Square, with the number of queries that each image took."""

    def square(*args: Any) -> tuple[Array, Array]:
        found = attacks.square_with_queries(*args, epsilon=epsilon, num_queries=num_queries)
        return found.adversarial, found.queries

    return square
