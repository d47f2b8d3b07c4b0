"""Checks that compare the results of several attacks on the same images."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from cat_jax.errors import UsageError
from cat_jax.evaluation.checks.findings import Finding, finding

Flags = Mapping[str, np.ndarray]
Groups = Mapping[str, Any]  # By attack: equal values for attacks that may be compared.

CASCADE = ("apgd_ce", "apgd_t", "fab_t", "standard")  # AutoAttack's attacks, in its order.
SIGNIFICANCE = 0.01
MAX_SQUARE_SHARE = 0.002  # AutoAttack warns from 0.2 points too.
MAX_MISSED_SHARE = 0.005
MAX_TRANSFER_SHARE = 0.02  # Three honest networks on digits: at most 0.003.
MAX_GAIN = 0.02  # Of PGD-100 over PGD-20, in accuracy.
MIN_COUNT = 3  # Fewer images than this are chance, whatever their share.


def compare(
    flags: Flags, conditions: Mapping[str, Mapping[str, Any]] | None = None
) -> list[Finding]:
    """Runs the checks whose attacks are in `flags`; each passes for an honest evaluation.

    Only attacks in the same ball are compared, and PGD-20 with PGD-100 only if they differ in
    nothing but the number of steps.

    Args:
      flags: by attack, bool [N]: whether the image is still correct. "natural" is no attack. An
        attack of `CASCADE` includes those before it; "standard" includes all, as does
        "standard_q1000" with another number of queries of Square. A name that ends in "_transfer"
        is of images that were found on another classifier; only transfer_is_weaker reads those.
      conditions: by attack, as in `NamedAttack.conditions`. By default, attacks whose names end in
        "_unclipped" share one threat model, and all others another.

    Returns:
      attacks_lower_accuracy, more_steps_are_stronger, more_steps_are_stronger_unclipped,
      pgd_has_converged, gradient_attacks_suffice, standard_is_strongest and transfer_is_weaker, in
      this order, without those whose attacks are absent.

    Raises:
      UsageError: unless all flags are bool, have the same length, and are not empty.
    """
    _check(flags)
    threats, every = _threats(flags, conditions), flags
    flags = {name: f for name, f in every.items() if not name.endswith("_transfer")}
    settings = _settings(flags, conditions)
    findings = [
        _attacks_lower_accuracy(flags),
        _more_steps_are_stronger(flags, settings, ""),
        _more_steps_are_stronger(flags, settings, "_unclipped"),
        _pgd_has_converged(flags, settings),
        _gradient_attacks_suffice(flags, threats),
        _standard_is_strongest(flags, threats),
        _transfer_is_weaker(flags, every, threats),
    ]
    return [finding for finding in findings if finding is not None]


def _threats(flags: Flags, conditions: Mapping[str, Mapping[str, Any]] | None) -> Groups:
    if conditions is None:
        return {name: name.endswith("_unclipped") for name in flags}
    ball = ("norm", "epsilon", "clipped")
    return {name: tuple(conditions[name].get(field) for field in ball) for name in flags}


def _settings(flags: Flags, conditions: Mapping[str, Mapping[str, Any]] | None) -> Groups:
    """By attack: equal for attacks that differ only in their number of steps."""
    if conditions is None:
        return _threats(flags, None)
    ignored = {"attack", "num_steps"}
    return {
        name: json.dumps(
            {k: v for k, v in conditions[name].items() if k not in ignored},
            sort_keys=True,
            allow_nan=False,
        )
        for name in flags
    }


def sign_test(wins: int, losses: int) -> float:
    """P(at most `wins` heads in wins + losses tosses of a fair coin); 1 without tosses.

    The result is exact, because Python's integers have no limit.
    """
    tosses = wins + losses
    ways, total = 1, 0
    for heads in range(wins + 1):
        total += ways  # math.comb(tosses, heads), which would take seconds for 10,000 tosses.
        ways = ways * (tosses - heads) // (heads + 1)
    return total / 2**tosses


def _attacks_lower_accuracy(flags: Flags) -> Finding | None:
    if "natural" not in flags or len(flags) < 2:
        return None
    natural = int(flags["natural"].sum())
    gains = {name: int(f.sum()) - natural for name, f in flags.items() if name != "natural"}
    name = max(gains, key=lambda name: gains[name])
    points = 100 * abs(gains[name]) / _count(flags)
    number = (
        f"Of all attacks, {name} lowers accuracy least: {points:.2f} points below natural accuracy."
        if gains[name] <= 0
        else f"Accuracy under {name} is {points:.2f} points above natural accuracy."
    )
    meaning = (
        "No attack should raise accuracy. Check that both used the same weights and images in "
        "inference mode, and that the attack maximises its loss."
    )
    passed = gains[name] <= 0
    return _compared(flags, finding("attacks_lower_accuracy", passed, number, meaning))


def _more_steps_are_stronger(flags: Flags, settings: Groups, suffix: str) -> Finding | None:
    """Tests whether the shorter attack fools too many of the images that only one of them fools."""
    short, long = f"pgd20{suffix}", f"pgd100{suffix}"
    if not {short, long} <= set(flags) or settings[short] != settings[long]:
        return None
    wins = int(np.sum(flags[short] & ~flags[long]))
    losses = int(np.sum(flags[long] & ~flags[short]))
    p = sign_test(wins, losses)
    number = f"Only {long} fools {wins} images, only {short} fools {losses} (p = {p:.2g})."
    meaning = (
        "More steps make the attack weaker: masked gradients or a step that is too large mislead "
        "it. Try a smaller step, APGD, and an attack without gradients (Square)."
    )
    name = f"more_steps_are_stronger{suffix}"
    return _compared((short, long), finding(name, p >= SIGNIFICANCE, number, meaning))


def _pgd_has_converged(flags: Flags, settings: Groups) -> Finding | None:
    attacks = ("pgd20", "pgd100")
    if not set(attacks) <= set(flags) or settings["pgd20"] != settings["pgd100"]:
        return None
    count = int(flags["pgd20"].sum()) - int(flags["pgd100"].sum())
    gain = count / _count(flags)
    number = (
        f"pgd100 lowers accuracy by {100 * gain:.2f} points beyond pgd20."
        if gain >= 0
        else f"pgd100 leaves accuracy {-100 * gain:.2f} points above pgd20."
    )
    meaning = (
        "20 steps are too few for this classifier, so accuracy under PGD-20 is too high. Report "
        "PGD-100 or AutoAttack."
    )
    passed = gain <= MAX_GAIN or count < MIN_COUNT
    return _compared(attacks, finding("pgd_has_converged", passed, number, meaning))


def _gradient_attacks_suffice(flags: Flags, threats: Groups) -> Finding | None:
    """Compares Square with the cascade before it, or with all other attacks in its ball."""
    names = ("standard", "square", "standard_individual", "plus_square")
    standard, square, worst, plus = (_with_queries(name, flags) for name in names)
    if standard and "fab_t" in flags:
        missed, others = flags["fab_t"] & ~flags[standard], ["APGD and FAB"]
        attacks = ["fab_t", standard]
    elif plus and "plus_fab" in flags:
        missed, others = flags["plus_fab"] & ~flags[plus], ["APGD and FAB"]
        attacks = ["plus_fab", plus]
    elif square and (same_ball := _same_ball(square, flags, threats, {square, standard, worst})):
        missed, others = ~flags[square] & _correct_under_all(same_ball), list(same_ball)
        attacks = [square, *same_ball]
    else:
        return None
    number = f"Square fools {missed.sum()} of {len(missed)} images that withstand {_join(others)}."
    meaning = (
        "An attack without gradients fools images that gradient attacks miss (gradient masking): "
        "accuracy under gradient attacks is too high. Report the lowest accuracy of all attacks, "
        "with more queries of Square, and look for what masks the gradient."
    )
    passed = _is_rare(missed, MAX_SQUARE_SHARE)
    return _compared(attacks, finding("gradient_attacks_suffice", passed, number, meaning))


def _standard_is_strongest(flags: Flags, threats: Groups) -> Finding | None:
    standard = _with_queries("standard", flags)
    others = _same_ball(standard, flags, threats, {*CASCADE, standard}) if standard else {}
    if not others:
        return None
    missed = flags[standard] & ~_correct_under_all(others)
    number = f"Other attacks fool {missed.sum()} of {len(missed)} images that withstand AutoAttack."
    meaning = (
        "AutoAttack should be the strongest attack. Check that all attacks used the same weights; "
        "report the lowest accuracy of all attacks."
    )
    passed = _is_rare(missed, MAX_MISSED_SHARE)
    attacks = (standard, *others)
    return _compared(attacks, finding("standard_is_strongest", passed, number, meaning))


def _transfer_is_weaker(flags: Flags, every: Flags, threats: Groups) -> Finding | None:
    """Compares images that were found on other classifiers with the attacks in the same ball."""
    names = [name for name in every if name not in flags]
    own = [name for name in flags if name != "natural" and threats[name] in map(threats.get, names)]
    names = [name for name in names if threats[name] in map(threats.get, own)]
    if not names:
        return None
    missed = ~_correct_under_all({name: every[name] for name in names})
    missed &= _correct_under_all({name: flags[name] for name in own})
    number = (
        f"Images that were found on other classifiers fool this one on {missed.sum()} of "
        f"{len(missed)} images that withstand {_join(own)}."
    )
    meaning = (
        "Attacks that see the classifier should be the stronger ones: masked gradients mislead "
        "them, or they are too short. Report the lowest accuracy of all attacks, transfer too, "
        "and attack with Square and more steps."
    )
    passed = _is_rare(missed, MAX_TRANSFER_SHARE)
    return _compared((*own, *names), finding("transfer_is_weaker", passed, number, meaning))


def _join(names: Collection[str]) -> str:
    """ "a, b and c"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _compared(attacks: Collection[str], finding: Finding) -> Finding:
    """The finding with the names of the attacks that it compares."""
    return finding._replace(attacks=tuple(attacks))


def _with_queries(name: str, flags: Flags) -> str:
    """The attack of this name, or with a number of queries such as "standard_q1000"; or ""."""
    return next((attack for attack in flags if re.fullmatch(rf"{name}(_q\d+)?", attack)), "")


def _same_ball(
    attack: str, flags: Flags, threats: Groups, without: Collection[str]
) -> dict[str, np.ndarray]:
    """The flags of the other attacks in the ball of `attack`, except natural and `without`.

    Without those of AutoAttack's "plus" too, each of which includes those before it.
    """
    return {
        name: correct
        for name, correct in flags.items()
        if name not in {"natural", *without}
        and threats[name] == threats[attack]
        and not name.startswith("plus")
    }


def _correct_under_all(flags: Flags) -> np.ndarray:
    return np.all(list(flags.values()), axis=0)


def _is_rare(missed: np.ndarray, share: float) -> bool:
    return bool(missed.sum() < MIN_COUNT or missed.mean() <= share)


def _count(flags: Flags) -> int:
    return len(next(iter(flags.values())))


def _check(flags: Flags) -> None:
    forms = {name: f"{values.dtype}{list(values.shape)}" for name, values in flags.items()}
    is_fine = all(f.dtype == bool and f.ndim == 1 and len(f) for f in flags.values())
    if not is_fine or len(set(forms.values())) > 1:
        raise UsageError(
            f"Flags are {', '.join(f'{name}: {form}' for name, form in forms.items())}; expected "
            "bool [N] with the same N of at least 1: pass the flags of the same images."
        )
