"""AutoAttack's suites: attacks that each run on the images that no earlier one has fooled."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from cat_jax.experiment.listed_attack import STANDARD_QUERIES, Listed, forward_passes


def counted(name: str, settings: ConfigDict) -> str:
    """The name, and the number of queries of Square unless it is AutoAttack's: "standard_q1000"."""
    number = settings.num_queries
    return name if number == STANDARD_QUERIES else f"{name}_q{number}"


def standard(settings: ConfigDict) -> list[Listed]:
    """AutoAttack's cascade (`attacks.standard`), whose last attack, Square, has its name."""
    num_steps, num_targets = 100, 9
    steps: dict[str, Any] = dict(epsilon=settings.epsilon, norm=settings.norm, num_steps=num_steps)
    targets, first, first_targets = dict(num_targets=num_targets), steps, num_targets
    if settings.norm == "l1":  # AutoAttack's settings there.
        first, first_targets = steps | dict(num_restarts=5), 5
    members = [
        ("apgd_ce", "apgd", first, "natural"),
        ("apgd_t", "apgd_t", steps | dict(num_targets=first_targets), "apgd_ce"),
        ("fab_t", "fab_t", steps | targets, "apgd_t"),
    ]
    return [
        *(Listed(n, f, a, 0, after, forward_passes(f, a)) for n, f, a, after in members),
        square("standard", settings, after="fab_t"),
    ]


def individual(standard: Sequence[Listed], settings: ConfigDict) -> list[Listed]:
    """Each attack of a cascade on all images, and last the worst case of each image."""
    first, *others, square = (dataclasses.replace(attack, after="natural") for attack in standard)
    alone = [dataclasses.replace(attack, name=f"{attack.name}_alone") for attack in others]
    square = dataclasses.replace(square, name=counted("square", settings))
    members = [first, *alone, square]
    names = tuple(attack.name for attack in members)
    return [*members, Listed(counted("standard_individual", settings), worst_of=names)]


def plus(standard: Sequence[Listed], settings: ConfigDict) -> list[Listed]:
    """AutoAttack's version "plus", whose last attack, FAB-T, has its name."""
    first, *_, fab_t, square = standard
    runs, targets = {**first.arguments, "num_restarts": 5}, {**fab_t.arguments}
    members = [
        ("apgd_ce", "apgd", runs),
        ("apgd_dlr", "apgd_dlr", runs),
        ("fab", "fab", runs),
        ("square", square.function, square.arguments),
        ("apgd_t", "apgd_t", targets),
        ("", fab_t.function, targets),
    ]
    attacks, after = [], "natural"
    for member, function, arguments in members:
        name = "_".join(filter(None, ("plus", member)))
        name = counted(name, settings) if member in ("square", "") else name
        queries = forward_passes(function, arguments)
        attacks.append(Listed(name, function, arguments, 0, after, queries))
        after = name
    return attacks


def rand(standard: Sequence[Listed]) -> list[Listed]:
    """AutoAttack's version for random defences (`attacks.rand`)."""
    first = standard[0]
    return [
        first,
        dataclasses.replace(first, name="apgd_dlr", function="apgd_dlr", after=first.name),
    ]


def square(name: str, settings: ConfigDict, after: str) -> Listed:
    """Square with the queries of the config, under the name that `counted` gives."""
    arguments: dict[str, Any] = dict(epsilon=settings.epsilon, norm=settings.norm)
    arguments["num_queries"] = settings.num_queries
    return Listed(counted(name, settings), "square_counted", arguments, after=after)
