"""The attacks of the tables as data: by name, a function of `cat_jax.attacks` and its arguments.

`evaluation_attacks` builds them. Tables and reports compare results with these conditions, without
JAX.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from cat_jax.errors import UsageError, check_choice
from cat_jax.experiment import cascades
from cat_jax.experiment.attack_words import FUNCTIONS, with_arguments, words
from cat_jax.experiment.limits import MAX_RADIUS
from cat_jax.experiment.listed_attack import NATURAL, Listed, forward_passes
from cat_jax.experiment.settings import chosen_fields
from cat_jax.runtime.registry import EvaluationAttack, records_of
from cat_jax.storage import lines

# The radii of a curve, as multiples of the radius of the tests.
CURVE_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
MARK_SHARES = (0.5, 0.75, 1.0, 1.5, 2.0)


def listed(config: ConfigDict) -> list[Listed]:
    """The attacks that `config.evaluation` names, each after the one that it follows.

    Args:
      config: a resolved config.

    Raises:
      UsageError: for a name that is neither a suite nor an attack.
    """
    paper, standard = _paper(config.test), cascades.standard(config.test)
    individual, plus = (
        cascades.individual(standard, config.test),
        cascades.plus(standard, config.test),
    )
    rand = cascades.rand(standard)
    every = [NATURAL, *paper, *standard, *individual, *plus, *rand]
    by_name = {attack.name: attack for attack in every}
    # Also under their plain names: in a config with 1,000 queries square means square_q1000.
    counted = {name: cascades.counted(name, config.test) for name in ("square", "standard")}
    by_name |= {name: by_name[full] for name, full in counted.items() if full in by_name}
    suites: dict[str, list[str]] = {
        "none": [],
        "quick": [name for name in ("natural", "pgd20", "pgd20_unclipped") if name in by_name],
        "paper": ["natural", *(attack.name for attack in paper)],
        "curve": ["natural"],
        "corruptions": ["natural"],
    }
    parts = {"standard": standard, "standard_individual": individual, "plus": plus, "rand": rand}
    for name, members in parts.items():
        suites[name] = ["natural", *(attack.name for attack in members)]
    # The worst case needs its members also under the name that its results have.
    suites[individual[-1].name] = suites["standard_individual"]
    by_name |= _registered(config.test, by_name, suites)
    attacks: dict[str, Listed] = {}
    for word in words(config.evaluation):
        if ":" in word or (word in FUNCTIONS and word not in by_name):
            by_name[word] = with_arguments(word, config.test)
        check_choice("config.evaluation", word, dict.fromkeys([*suites, *by_name, *FUNCTIONS]))
        for name in suites.get(word, [word]):
            chain = [by_name[name]]
            while chain[0].after:
                chain.insert(0, by_name[chain[0].after])
            attacks |= {attack.name: attack for attack in chain}
    return list(attacks.values())


def curves(config: ConfigDict, num_pixels: int) -> list[tuple[Listed, list[float]]]:
    """The attacks of accuracy against epsilon and their radii, if `config.evaluation` names them.

    FMN finds the accuracy at all radii in one run, and APGD checks it at some of them. In an
    L-infinity ball the first step of FMN leads as far as a corner of the ball of the tests.

    Args:
      config: a resolved config.
      num_pixels: H W C of the images.
    """
    if not {"curve", "paper"} & set(words(config.evaluation)):
        return []
    arguments: dict[str, Any] = dict(epsilon=config.test.epsilon, norm=config.test.norm)
    arguments["num_steps"] = 100
    longest = config.test.epsilon * math.sqrt(num_pixels) if config.test.norm == "linf" else 1.0
    fmn = Listed(lines.CURVE, "fmn", arguments | dict(step_size=longest), queries=101)
    apgd = Listed(lines.MARKS, "apgd", arguments, queries=forward_passes("apgd", arguments))
    return [(fmn, _radii(config.test, CURVE_SHARES)), (apgd, _radii(config.test, MARK_SHARES))]


def has_corruptions(config: ConfigDict) -> bool:
    """Whether `config.evaluation` names corrupted images."""
    return "corruptions" in words(config.evaluation)


def _radii(settings: ConfigDict, shares: Sequence[float]) -> list[float]:
    """These multiples of the radius of the tests."""
    max_radius = MAX_RADIUS[settings.norm]
    return sorted({min(share * settings.epsilon, max_radius) for share in shares})


def _registered(
    settings: ConfigDict, existing: Mapping[str, Listed], suites: Mapping[str, Any]
) -> dict[str, Listed]:
    """The attacks of plugins.

    Raises:
      UsageError: for the name of another attack or suite, or for an unknown attack before one.
    """
    registered = {}
    for name, record in records_of(EvaluationAttack).items():
        if name in existing or name in suites:
            raise UsageError(
                f"A plugin registers the attack {name!r}, which is a name in cat_jax; register it "
                "under another name."
            )
        if record.after and record.after not in existing:
            raise UsageError(f"The attack {name} follows {record.after!r}, which does not exist.")
        arguments = chosen_fields(settings, "test", record.fields)
        registered[name] = Listed(name, name, arguments, 0, record.after, record.queries)
    return registered


def _paper(settings: ConfigDict) -> list[Listed]:
    """The attacks of the paper's tables in their order (sec. 5.1), then additional ones."""
    step_size = settings.step_size
    ball: dict[str, Any] = dict(epsilon=settings.epsilon, norm=settings.norm)

    def pgd(name: str, num_steps: int, num_restarts: int = 0, **extra: Any) -> Listed:
        fixed = dict(num_steps=num_steps, step_size=step_size, random_start=num_restarts > 0)
        queries = num_restarts * (num_steps + 1) if num_restarts else num_steps
        return Listed(name, "pgd", ball | fixed | extra, num_restarts, queries=queries)

    attacks = [Listed("fgsm", "fgsm", ball), pgd("pgd20", 20), pgd("pgd100", 100)]
    if settings.norm == "linf":  # C&W's attack in the paper.
        cw_inf: dict[str, Any] = dict(epsilon=settings.cw_epsilon, step_size=step_size)
        cw_inf |= dict(kappa=settings.cw_kappa, random_start=settings.cw_random_start)
        attacks.append(Listed("cw_inf", "cw_linf", cw_inf | dict(num_steps=30), queries=30))
    # Square skips images that are classified wrongly, so it follows natural accuracy.
    attacks.append(cascades.square("square", settings, after="natural"))
    if settings.unclipped:
        attacks += [pgd(f"pgd{n}_unclipped", n, pixel_range=None) for n in (20, 100)]
    if (num_restarts := settings.num_restarts) > 0:
        attacks.append(pgd(f"pgd40_restarts{num_restarts}", 40, num_restarts))
    return attacks
