"""What the accuracies under several attacks, held together, reveal about each."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from cat_jax.checks.findings import Finding, finding
from cat_jax.errors import UsageError

Flags = Mapping[str, np.ndarray]
Threats = Mapping[str, Any]  # By attack: equal for attacks that are in the same ball.

CASCADE = ("apgd_ce", "apgd_t", "fab_t", "standard")  # AutoAttack's, each after those before it.
SIGNIFICANT = 0.01
SEARCHED = 0.002  # Of the examples: AutoAttack warns from 0.2 points.
STRONGER = 0.005
UNFINISHED = 0.02
FEW = 3  # So many examples are chance, whatever their share.


def compare(
    flags: Flags, conditions: Mapping[str, Mapping[str, Any]] | None = None
) -> list[Finding]:
    """Checks that the accuracies of an honest evaluation pass; each only if its attacks are there.

    Only attacks in the same ball are compared, and PGD-20 with PGD-100 only if the number of steps
    is all that differs.

    Args:
      flags: by the name of an attack, bool [N]: is the example still right? "natural" is no attack.
        Those of `CASCADE` are each of what withstands the ones before it too: "standard", of all
        four; "standard_q1000" is the same with another number of Square's queries.
      conditions: of each attack, as `NamedAttack.conditions` has them. By default names that end in
        "_unclipped" are of one threat model, and all others of another.

    Returns:
      Of natural, steps, steps_unclipped, converged, black_box and strongest those that there are,
      in this order.

    Raises:
      UsageError: unless all flags are bool, of the same length, and of one example at least.
    """
    _check(flags)
    threats, settings = _threats(flags, conditions), _settings(flags, conditions)
    rows = [
        _natural(flags),
        _steps("steps", flags, settings, "pgd20", "pgd100"),
        _steps("steps_unclipped", flags, settings, "pgd20_unclipped", "pgd100_unclipped"),
        _converged(flags, settings),
        _black_box(flags, threats),
        _strongest(flags, threats),
    ]
    return [row for row in rows if row is not None]


def _threats(flags: Flags, conditions: Mapping[str, Mapping[str, Any]] | None) -> Threats:
    if conditions is None:
        return {name: name.endswith("_unclipped") for name in flags}
    ball = ("norm", "epsilon", "clipped")
    return {name: tuple(conditions[name].get(field) for field in ball) for name in flags}


def _settings(flags: Flags, conditions: Mapping[str, Mapping[str, Any]] | None) -> Threats:
    """By attack: equal for attacks that differ in their number of steps alone."""
    if conditions is None:
        return _threats(flags, None)
    aside = {"attack", "num_steps"}
    return {
        name: json.dumps(
            {k: v for k, v in conditions[name].items() if k not in aside},
            sort_keys=True,
            allow_nan=False,
        )
        for name in flags
    }


def sign_test(wins: int, losses: int) -> float:
    """P(at most `wins` heads in wins + losses tosses of a fair coin); 1 without tosses."""
    tosses = wins + losses
    ways, total = 1, 0  # Exact: Python's integers are as long as it takes.
    for heads in range(wins + 1):
        total += ways  # math.comb(tosses, heads), by its neighbour: 10,000 anew take seconds.
        ways = ways * (tosses - heads) // (heads + 1)
    return total / 2**tosses


def _natural(flags: Flags) -> Finding | None:
    if "natural" not in flags or len(flags) < 2:
        return None
    natural = int(flags["natural"].sum())
    gained = {name: int(f.sum()) - natural for name, f in flags.items() if name != "natural"}
    name = max(gained, key=lambda name: gained[name])
    number = (
        f"Accuracy under {name} is {100 * gained[name] / _count(flags):+.2f} points from natural."
    )
    meaning = (
        "No attack may leave more right than there were: were both run on the same weights and "
        "images, in inference mode, and does the attack ascend?"
    )
    return _of(flags, finding("natural", gained[name] <= 0, number, meaning))


def _steps(name: str, flags: Flags, settings: Threats, short: str, long: str) -> Finding | None:
    """Among the examples that only one of them broke: is it too often the shorter attack?"""
    if not {short, long} <= set(flags) or settings[short] != settings[long]:
        return None
    wins = int(np.sum(flags[short] & ~flags[long]))
    losses = int(np.sum(flags[long] & ~flags[short]))
    p = sign_test(wins, losses)
    number = f"{long} alone breaks {wins}, {short} alone {losses} examples (p = {p:.2g})."
    meaning = (
        "More steps do worse: the loss misleads its own ascent, by masked gradients or a step too "
        "large. Try a smaller step, APGD, and an attack without gradients (Square)."
    )
    return _of((short, long), finding(name, p >= SIGNIFICANT, number, meaning))


def _converged(flags: Flags, settings: Threats) -> Finding | None:
    both = ("pgd20", "pgd100")
    if not set(both) <= set(flags) or settings["pgd20"] != settings["pgd100"]:
        return None
    lost = int(flags["pgd20"].sum()) - int(flags["pgd100"].sum())
    share = lost / _count(flags)
    number = f"pgd100 leaves {100 * share:.2f} points less right than pgd20."
    meaning = (
        "PGD-20 ends before it has done its worst: its accuracy is too high for this classifier. "
        "Quote PGD-100, or AutoAttack."
    )
    return _of(both, finding("converged", share <= UNFINISHED or lost < FEW, number, meaning))


def _black_box(flags: Flags, threats: Threats) -> Finding | None:
    """Of the cascade, what its last attack, Square, adds; or Square alone beside all the others."""
    standard, square = (_with_queries(name, flags) for name in ("standard", "square"))
    if standard and "fab_t" in flags:
        missed, by = flags["fab_t"] & ~flags[standard], "the cascade before it"
        compared = ["fab_t", standard]
    elif square and (others := _same_ball(square, flags, threats, {square, standard})):
        missed, by = ~flags[square] & _right_under_all(others), ", ".join(others)
        compared = [square, *others]
    else:
        return None
    number = f"Square breaks {missed.sum()} of {len(missed)} examples that {by} left right."
    meaning = (
        "A search without gradients finds what gradients hide (masking): accuracies under "
        "attacks by gradient are too high. Report the least over all attacks, with Square at more "
        "queries, and look for what masks them."
    )
    return _of(compared, finding("black_box", _is_rare(missed, SEARCHED), number, meaning))


def _strongest(flags: Flags, threats: Threats) -> Finding | None:
    standard = _with_queries("standard", flags)
    others = _same_ball(standard, flags, threats, {*CASCADE, standard}) if standard else {}
    if not others:
        return None
    missed = flags[standard] & ~_right_under_all(others)
    number = (
        f"Other attacks break {missed.sum()} of {len(missed)} examples that AutoAttack left right."
    )
    meaning = (
        "It should be the strongest: was it run on the same weights? Its "
        "accuracy is too high: report the least over all attacks."
    )
    return _of(
        (standard, *others), finding("strongest", _is_rare(missed, STRONGER), number, meaning)
    )


def _of(attacks: Collection[str], row: Finding) -> Finding:
    """The finding with the attacks that it compares."""
    return row._replace(attacks=tuple(attacks))


def _with_queries(name: str, flags: Flags) -> str:
    """ "standard", or "standard_q1000" if that was run; "" for none of them."""
    return next((attack for attack in flags if re.fullmatch(rf"{name}(_q\d+)?", attack)), "")


def _same_ball(
    attack: str, flags: Flags, threats: Threats, without: Collection[str]
) -> dict[str, np.ndarray]:
    """The attacks in the ball of `attack`, but for those in `without`."""
    return {
        name: right
        for name, right in flags.items()
        if name not in {"natural", *without} and threats[name] == threats[attack]
    }


def _right_under_all(flags: Flags) -> np.ndarray:
    return np.all(list(flags.values()), axis=0)


def _is_rare(missed: np.ndarray, share: float) -> bool:
    return bool(missed.sum() < FEW or missed.mean() <= share)


def _count(flags: Flags) -> int:
    return len(next(iter(flags.values())))


def _check(flags: Flags) -> None:
    forms = {name: f"{right.dtype}{list(right.shape)}" for name, right in flags.items()}
    is_fine = all(f.dtype == bool and f.ndim == 1 and len(f) for f in flags.values())
    if not is_fine or len(set(forms.values())) > 1:
        raise UsageError(
            f"Flags are {', '.join(f'{name}: {form}' for name, form in forms.items())}; expected "
            "bool [N] with one N, from 1: give the flags of the same examples."
        )
