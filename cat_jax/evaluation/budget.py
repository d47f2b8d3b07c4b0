"""Checks that adversarial images stay in their ball and in [0, 1]."""

from collections.abc import Sequence

from cat_jax.evaluation.checks.findings import Finding, finding
from cat_jax.evaluation.images import SLACK
from cat_jax.evaluation.results import Result

NAME = "attacks_stay_in_ball"


def attacks_stay_in_ball(results: Sequence[Result]) -> Finding:
    """Checks by how much the worst image leaves its ball or [0, 1], measured in float64.

    For attacks that are not clipped to [0, 1] only the ball counts.

    Args:
      results: results of an `Evaluator`, which stops if an image leaves by more than rounding.
    """
    attacked = [result for result in results if result.num_attacked]
    clipped = [result.attack for result in attacked if result.conditions["clipped"]]
    unclipped = [result.attack for result in attacked if not result.conditions["clipped"]]
    if not attacked:
        return finding(NAME, True, "No image was attacked.", "")
    worst = max(attacked, key=lambda result: result.excess)
    total = sum(result.num_attacked for result in attacked)
    excess = max(worst.excess, 0.0) + 0.0  # Plus 0, so that no "-0.0" is printed.
    number = (
        f"{total} adversarial images leave their ball by at most {excess:.1e} ({worst.attack}), "
        f"measured in float64; {_pixels(clipped, unclipped)}"
    )
    meaning = f"Rounding explains {SLACK:.0e}: the attack breaks its rules; ignore its accuracy."
    row = finding(NAME, worst.excess <= SLACK, number, meaning)
    return row._replace(attacks=tuple(result.attack for result in attacked))


def _pixels(clipped: Sequence[str], unclipped: Sequence[str]) -> str:
    """Which attacks had to stay in [0, 1] too."""
    if not unclipped:
        return "none leaves [0, 1] by more."
    if not clipped:
        return f"none is clipped to [0, 1] ({', '.join(unclipped)})."
    return (
        f"{', '.join(clipped)} also stay in [0, 1]; {', '.join(unclipped)} are not clipped to it."
    )
