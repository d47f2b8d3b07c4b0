"""What the accuracies under several attacks, held together, reveal about each."""

from collections.abc import Collection, Mapping

import numpy as np

from cat_jax.checks.findings import Finding, finding
from cat_jax.errors import UsageError

Flags = Mapping[str, np.ndarray]

CASCADE = ("apgd_ce", "apgd_t", "fab_t", "standard")  # AutoAttack's, each after those before it.
SIGNIFICANT = 0.01
SEARCHED = 0.002  # Of the examples: AutoAttack warns from 0.2 points.
STRONGER = 0.005
UNFINISHED = 0.02
FEW = 3  # So many examples are chance, whatever their share.


def compare(flags: Flags) -> list[Finding]:
    """Checks that the accuracies of an honest evaluation pass; each only if its attacks are there.

    Args:
      flags: by the name of an attack, bool [N]: is the example still right? "natural" is no attack;
        names that end in "_unclipped" are of another threat model. Those of `CASCADE` are each of
        what withstands the ones before it too: "standard", of all four. Leave out attacks in a
        larger ball.

    Returns:
      Of natural, steps, steps_unclipped, converged, black_box and strongest those that there are,
      in this order.

    Raises:
      UsageError: unless all flags are bool, of the same length, and of one example at least.
    """
    _check(flags)
    rows = [
        _natural(flags),
        _steps("steps", flags, "pgd20", "pgd100"),
        _steps("steps_unclipped", flags, "pgd20_unclipped", "pgd100_unclipped"),
        _converged(flags),
        _black_box(flags),
        _strongest(flags),
    ]
    return [row for row in rows if row is not None]


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
    return finding("natural", gained[name] <= 0, number, meaning)


def _steps(name: str, flags: Flags, short: str, long: str) -> Finding | None:
    """Among the examples that only one of them broke: is it too often the shorter attack?"""
    if not {short, long} <= set(flags):
        return None
    wins = int(np.sum(flags[short] & ~flags[long]))
    losses = int(np.sum(flags[long] & ~flags[short]))
    p = sign_test(wins, losses)
    number = f"{long} alone breaks {wins}, {short} alone {losses} examples (p = {p:.2g})."
    meaning = (
        "More steps do worse: the loss misleads its own ascent, by masked gradients or a step too "
        "large. Try a smaller step, APGD, and an attack without gradients (Square)."
    )
    return finding(name, p >= SIGNIFICANT, number, meaning)


def _converged(flags: Flags) -> Finding | None:
    if not {"pgd20", "pgd100"} <= set(flags):
        return None
    lost = int(flags["pgd20"].sum()) - int(flags["pgd100"].sum())
    share = lost / _count(flags)
    number = f"pgd100 leaves {100 * share:.2f} points less right than pgd20."
    meaning = (
        "PGD-20 ends before it has done its worst: its accuracy is too high for this classifier. "
        "Quote PGD-100, or AutoAttack."
    )
    return finding("converged", share <= UNFINISHED or lost < FEW, number, meaning)


def _black_box(flags: Flags) -> Finding | None:
    """Of the cascade, what its last attack, Square, adds; or Square alone beside all the others."""
    if {"fab_t", "standard"} <= set(flags):
        missed, by = flags["fab_t"] & ~flags["standard"], "the cascade before it"
    elif "square" in flags and (others := _same_ball(flags, {"square", "standard"})):
        missed, by = ~flags["square"] & _right_under_all(others), ", ".join(others)
    else:
        return None
    number = f"Square breaks {missed.sum()} of {len(missed)} examples that {by} left right."
    meaning = (
        "A search without gradients finds what gradients hide (masking): accuracies under "
        "attacks by gradient are too high. Report the least over all attacks, with Square at more "
        "queries, and look for what masks them."
    )
    return finding("black_box", _is_rare(missed, SEARCHED), number, meaning)


def _strongest(flags: Flags) -> Finding | None:
    others = _same_ball(flags, CASCADE)
    if "standard" not in flags or not others:
        return None
    missed = flags["standard"] & ~_right_under_all(others)
    number = (
        f"Other attacks break {missed.sum()} of {len(missed)} examples that AutoAttack left right."
    )
    meaning = (
        "It should be the strongest: was it run at the same epsilon and on the same weights? Its "
        "accuracy is too high: report the least over all attacks."
    )
    return finding("strongest", _is_rare(missed, STRONGER), number, meaning)


def _same_ball(flags: Flags, without: Collection[str]) -> dict[str, np.ndarray]:
    """The attacks of the common threat model, but for those in `without`."""
    return {
        name: right
        for name, right in flags.items()
        if name not in {"natural", *without} and not name.endswith("_unclipped")
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
