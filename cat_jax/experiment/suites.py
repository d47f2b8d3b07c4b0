"""The attacks of the tables as data: by name, a function of `cat_jax.attacks` and its arguments.

`evaluation_attacks` builds them. Tables and reports compare results with these conditions, without
JAX.
"""

import ast
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from cat_jax.errors import UsageError, check_choice
from cat_jax.experiment.limits import MAX_RADIUS, radius_text, read_radius
from cat_jax.experiment.settings import chosen_fields
from cat_jax.runtime.registry import EvaluationAttack, records_of
from cat_jax.storage import lines

# The radii of a curve, as multiples of the radius of the tests.
CURVE_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
MARK_SHARES = (0.5, 0.75, 1.0, 1.5, 2.0)
EXAMPLE_RADII = {"linf": "8/255", "l2": "0.5", "l1": "12"}  # Common ones on CIFAR-10.
STANDARD_QUERIES = 5000  # Queries of Square, in AutoAttack and in the paper.


@dataclasses.dataclass(frozen=True)
class Listed:
    """An attack of a suite.

    Attributes:
      name: name of the attack in results.
      function: name of a function of `cat_jax.attacks`; "" for natural accuracy.
      arguments: arguments of the function that the suite sets.
      num_restarts: number of random starts of the complete attack; 0: it runs once.
      after: name of the attack before it in a cascade.
      queries: forward passes on each image, where the attack does not count them.
      worst_of: names of attacks whose worst case for each image this is; it has no function.
    """

    name: str
    function: str = ""
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    num_restarts: int = 0
    after: str = ""
    queries: int = 1
    worst_of: tuple[str, ...] = ()

    def agrees(self, conditions: Mapping[str, Any]) -> bool:
        """Whether the conditions of a result are those of the suite."""
        arguments = dict(self.arguments)
        if "pixel_range" in arguments:
            arguments["clipped"] = arguments.pop("pixel_range") is not None
        restarts = max(self.num_restarts, 1) * arguments.pop("num_restarts", 1)
        expected = {"attack": self.name, **arguments}
        if self.function:
            expected["restarts"] = restarts
        return all(conditions.get(name) == value for name, value in expected.items())


NATURAL = Listed("natural")

# Attacks that take arguments by name, and those that differ from the defaults of the functions.
# "pgd:num_steps=50,restarts=10" is a word of `config.evaluation`.
FUNCTIONS: dict[str, dict[str, Any]] = {
    "fgsm": {},
    "pgd": {"num_steps": 20},
    "cw_linf": {"num_steps": 30},
    "mi_fgsm": {"num_steps": 10},
    "apgd": {"num_steps": 100},
    "apgd_dlr": {"num_steps": 100},
    "apgd_t": {"num_steps": 100, "num_targets": 9},
    "fab": {"num_steps": 100},
    "fab_t": {"num_steps": 100, "num_targets": 9},
    "square": {"num_queries": STANDARD_QUERIES},
}


def words(evaluation: str) -> list[str]:
    """The words of `config.evaluation`. A comma between the arguments of an attack ends no word."""
    texts: list[str] = []
    for part in evaluation.split(","):
        if "=" in part and ":" not in part and texts and ":" in texts[-1]:
            texts[-1] += f",{part}"
        else:
            texts.append(part)
    return texts


def listed(config: ConfigDict) -> list[Listed]:
    """The attacks that `config.evaluation` names, each after the one that it follows.

    Args:
      config: a resolved config.

    Raises:
      UsageError: for a name that is neither a suite nor an attack.
    """
    paper, standard = _paper(config.test), _standard(config.test)
    individual, plus = _individual(standard, config.test), _plus(standard, config.test)
    rand = _rand(standard)
    every = [NATURAL, *paper, *standard, *individual, *plus, *rand]
    by_name = {attack.name: attack for attack in every}
    # Also under their plain names: in a config with 1,000 queries square means square_q1000.
    counted = {name: _counted(name, config.test) for name in ("square", "standard")}
    by_name |= {name: by_name[full] for name, full in counted.items() if full in by_name}
    suites: dict[str, list[str]] = {
        "none": [],
        "quick": [name for name in ("natural", "pgd20", "pgd20_unclipped") if name in by_name],
        "paper": ["natural", *(attack.name for attack in paper)],
        "curve": ["natural"],
        "corruptions": ["natural"],
    }
    cascades = {"standard": standard, "standard_individual": individual, "plus": plus, "rand": rand}
    for name, members in cascades.items():
        suites[name] = ["natural", *(attack.name for attack in members)]
    by_name |= _registered(config.test, by_name, suites)
    attacks: dict[str, Listed] = {}
    for word in words(config.evaluation):
        if ":" in word or (word in FUNCTIONS and word not in by_name):
            by_name[word] = _with_arguments(word, config.test)
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
    apgd = Listed(lines.MARKS, "apgd", arguments, queries=_forward_passes("apgd", arguments))
    return [(fmn, _radii(config.test, CURVE_SHARES)), (apgd, _radii(config.test, MARK_SHARES))]


def _radii(settings: ConfigDict, shares: Sequence[float]) -> list[float]:
    """These multiples of the radius of the tests."""
    max_radius = MAX_RADIUS[settings.norm]
    return sorted({min(share * settings.epsilon, max_radius) for share in shares})


def _with_arguments(word: str, settings: ConfigDict) -> Listed:
    """The attack "NAME" or "NAME:ARGUMENT=VALUE,..." in the ball of the tests or in another.

    It attacks the images that are classified correctly.

    Raises:
      UsageError: for a function that takes none, an argument without a value, and another norm
        without its radius.
    """
    name, _, text = word.partition(":")
    check_choice(f"the attack of config.evaluation={word!r}", name, FUNCTIONS)
    parts = [part.partition("=") for part in text.split(",") if text]
    texts = {argument: value for argument, _, value in parts}
    norm, epsilon = _ball(word, texts, settings)
    named = {k: _value(word, k, v, norm, epsilon) for k, v in texts.items() if k != "norm"}
    num_restarts = named.pop("restarts", 0)
    arguments = {"epsilon": epsilon} | FUNCTIONS[name] | named
    if name != "cw_linf":
        arguments = {"norm": norm} | arguments
    elif norm != "linf":
        raise UsageError(
            f"{word} attacks in L-infinity balls only; the norm is {norm}. Set both: "
            "cw_linf:norm=linf,epsilon=8/255."
        )
    if name in ("pgd", "cw_linf"):  # The step size keeps its ratio to the radius.
        share = settings.step_size / settings.epsilon
        arguments = {"step_size": share * arguments["epsilon"]} | arguments
    queries = _forward_passes(name, arguments)
    queries = num_restarts * (queries + 1) if num_restarts else queries
    function = "square_counted" if name == "square" else name
    return Listed(word, function, arguments, num_restarts, "natural", queries)


def _ball(word: str, texts: Mapping[str, str], settings: ConfigDict) -> tuple[str, float]:
    """The norm and the radius of an attack: its arguments, or those of the tests.

    Raises:
      UsageError: for an unknown norm, and for another norm than that of the tests without a radius.
    """
    norm = texts.get("norm", settings.norm)
    check_choice(f"the norm of config.evaluation={word!r}", norm, MAX_RADIUS)
    if norm == settings.norm:
        text = texts.get("epsilon", settings.epsilon)
        return norm, read_radius("evaluation", text, norm, settings.epsilon)
    if "epsilon" not in texts:
        raise UsageError(
            f"config.evaluation has {word!r} without a radius; config.test.epsilon="
            f"{radius_text(settings.epsilon)} is one in {settings.norm}. Add a radius in {norm}, "
            f"such as {word},epsilon={EXAMPLE_RADII[norm]}."
        )
    return norm, read_radius("evaluation", texts["epsilon"], norm)


def _value(word: str, name: str, text: str, norm: str, epsilon: float) -> Any:
    """The value of an argument: a number, True or False, a radius such as 8/255, or a name."""
    if name == "targets":
        return text
    if name == "epsilon":
        return epsilon
    if name == "step_size":
        return read_radius("evaluation", text, norm, epsilon)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        part = f"{name}={text}" if text else name
        raise UsageError(
            f"config.evaluation has {part!r} in {word!r}; expected ARGUMENT=VALUE, such as "
            "pgd:num_steps=50,restarts=10."
        ) from None


def _forward_passes(function: str, arguments: Mapping[str, Any]) -> int:
    """Forward passes on each image, where the attack does not count them itself.

    APGD and FAB make one on the natural images; FAB makes two for each step. A run of APGD has one
    more than steps; in L1 it has three parts.
    """
    steps, targets = arguments.get("num_steps", 1), arguments.get("num_targets", 1)
    run = steps + (3 if arguments.get("norm") == "l1" else 1)
    return {
        "apgd": 1 + run * arguments.get("num_restarts", 1),
        "apgd_dlr": 1 + run * arguments.get("num_restarts", 1),
        "apgd_t": 1 + targets * run,
        "fab": 1 + 2 * steps * arguments.get("num_restarts", 1),
        "fab_t": 1 + targets * 2 * steps,
    }.get(function, steps)


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


def _counted(name: str, settings: ConfigDict) -> str:
    """The name, and the number of queries of Square unless it is AutoAttack's: "standard_q1000"."""
    number = settings.num_queries
    return name if number == STANDARD_QUERIES else f"{name}_q{number}"


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
    attacks.append(_square("square", settings, after="natural"))
    if settings.unclipped:
        attacks += [pgd(f"pgd{n}_unclipped", n, pixel_range=None) for n in (20, 100)]
    if (num_restarts := settings.num_restarts) > 0:
        attacks.append(pgd(f"pgd40_restarts{num_restarts}", 40, num_restarts))
    return attacks


def _standard(settings: ConfigDict) -> list[Listed]:
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
        *(Listed(n, f, a, 0, after, _forward_passes(f, a)) for n, f, a, after in members),
        _square("standard", settings, after="fab_t"),
    ]


def _individual(standard: Sequence[Listed], settings: ConfigDict) -> list[Listed]:
    """Each attack of a cascade on all images, and last the worst case of each image."""
    first, *others, square = (dataclasses.replace(attack, after="natural") for attack in standard)
    alone = [dataclasses.replace(attack, name=f"{attack.name}_alone") for attack in others]
    square = dataclasses.replace(square, name=_counted("square", settings))
    members = [first, *alone, square]
    names = tuple(attack.name for attack in members)
    return [*members, Listed(_counted("standard_individual", settings), worst_of=names)]


def _plus(standard: Sequence[Listed], settings: ConfigDict) -> list[Listed]:
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
        name = _counted(name, settings) if member in ("square", "") else name
        queries = _forward_passes(function, arguments)
        attacks.append(Listed(name, function, arguments, 0, after, queries))
        after = name
    return attacks


def _rand(standard: Sequence[Listed]) -> list[Listed]:
    """AutoAttack's version for random defences (`attacks.rand`)."""
    first = standard[0]
    return [
        first,
        dataclasses.replace(first, name="apgd_dlr", function="apgd_dlr", after=first.name),
    ]


def _square(name: str, settings: ConfigDict, after: str) -> Listed:
    arguments: dict[str, Any] = dict(epsilon=settings.epsilon, norm=settings.norm)
    arguments["num_queries"] = settings.num_queries
    return Listed(_counted(name, settings), "square_counted", arguments, after=after)
