"""Did the attacks keep their rules?"""

from collections.abc import Sequence

from cat_jax.checks.findings import Finding, finding
from cat_jax.evaluation.evaluator import SLACK
from cat_jax.evaluation.results import Result


def budget(results: Sequence[Result]) -> Finding:
    """By how much the worst image leaves its ball or the pixel range, measured in float64.

    Args:
      results: of an `Evaluator`, which refuses to go on where it is more than rounding.
    """
    attacks = [result for result in results if result.num_attacked]
    if not attacks:
        return finding("budget", True, "Nothing was attacked.", "")
    worst = max(attacks, key=lambda result: result.excess)
    total = sum(result.num_attacked for result in attacks)
    number = (
        f"Of {total} adversarial images none leaves its ball or [0, 1] by more than "
        f"{max(worst.excess, 0.0):.1e} ({worst.attack}), in float64."
    )
    meaning = f"More than rounding, {SLACK:.0e}: the attack cheats, and its accuracy is void."
    return finding("budget", worst.excess <= SLACK, number, meaning)
