"""Did the attacks keep their rules?"""

from collections.abc import Sequence

from cat_jax.checks.findings import Finding, finding
from cat_jax.evaluation.images import SLACK
from cat_jax.evaluation.results import Result


def budget(results: Sequence[Result]) -> Finding:
    """By how much the worst image leaves its ball or the pixel range, measured in float64.

    Of attacks that are not clipped to [0, 1] the ball alone is judged.

    Args:
      results: of an `Evaluator`, which stops where it is more than rounding.
    """
    attacked = [result for result in results if result.num_attacked]
    clipped = [result.attack for result in attacked if result.conditions["clipped"]]
    free = [result.attack for result in attacked if not result.conditions["clipped"]]
    if not attacked:
        return finding("budget", True, "Nothing was attacked.", "")
    worst = max(attacked, key=lambda result: result.excess)
    total = sum(result.num_attacked for result in attacked)
    most = max(worst.excess, 0.0) + 0.0  # Plus 0, so that no "-0.0" is printed.
    number = (
        f"{total} adversarial images leave their balls by at most {most:.1e} ({worst.attack}), in "
        f"float64; {_pixels(clipped, free)}"
    )
    meaning = f"More than rounding, {SLACK:.0e}: the attack cheats, and its accuracy is void."
    found = finding("budget", worst.excess <= SLACK, number, meaning)
    return found._replace(attacks=tuple(result.attack for result in attacked))


def _pixels(clipped: Sequence[str], free: Sequence[str]) -> str:
    """Which attacks were held to [0, 1] too."""
    if not free:
        return "none leaves [0, 1] by more."
    if not clipped:
        return f"none was held to [0, 1] ({', '.join(free)} are not clipped)."
    return f"{', '.join(clipped)} stay in [0, 1] too, {', '.join(free)} were not held to it."
