"""Comparisons of numbers, and what they say of a sentence: supported, contradicted, or neither."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cat_jax.report.render import heading

SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "not decidable"


class Key(NamedTuple):
    """A number of a table: where it is printed."""

    table: str
    row: str
    metric: str


class Value(NamedTuple):
    """A number in percent; a difference within the tolerance is chance."""

    mean: float
    tolerance: float
    name: str


Look = Callable[[Key], Value | None]


class Comparison(NamedTuple):
    """One thing that a sentence implies.

    Attributes:
      text: with the numbers.
      margin: by how much it holds; negative if it fails; None if a number is missing.
      tolerance: of the margin.
    """

    text: str
    margin: float | None
    tolerance: float = 0.0

    @property
    def verdict(self) -> str:
        """Whether it holds, beyond its tolerance."""
        if self.margin is None or abs(self.margin) <= self.tolerance + 1e-9:
            return UNDECIDED
        return SUPPORTED if self.margin > 0 else CONTRADICTED


class Verdict(NamedTuple):
    """Of a sentence, with the evidence in one line."""

    word: str
    evidence: str


def judge(comparisons: Sequence[Comparison]) -> Verdict:
    """Contradicted if one comparison fails, supported if all hold, else not decidable."""
    words = [comparison.verdict for comparison in comparisons]
    missing = sum(comparison.margin is None for comparison in comparisons)
    if missing == len(comparisons):
        return Verdict(UNDECIDED, "no numbers")
    word = UNDECIDED
    if CONTRADICTED in words:
        word = CONTRADICTED
    elif set(words) == {SUPPORTED}:
        word = SUPPORTED
    known = [comparison for comparison in comparisons if comparison.margin is not None]
    tightest = min(known, key=lambda c: (c.margin or 0.0) - c.tolerance)
    said = [f"{words.count(SUPPORTED)} of {len(words)} hold", f"closest: {tightest.text}"]
    if word == CONTRADICTED:
        said[1] = f"fails most: {tightest.text}"
    if missing:
        said.append(f"{missing} lack numbers")
    return Verdict(word, "; ".join(said))


def higher(
    left: Value | None, right: Value | None, *, by: float = 0.0, what: str = ""
) -> Comparison:
    """left > right + by."""
    if left is None or right is None:
        return Comparison(what, None)
    more = f" + {by:g}" if by > 0 else f" - {-by:g}" if by else ""
    margin = left.mean - right.mean - by
    sign = ">" if margin > 0 else "<" if margin < 0 else "="
    text = f"{left.name} {left.mean:.1f} {sign} {right.name} {right.mean:.1f}{more}"
    tolerance = math.hypot(left.tolerance, right.tolerance)
    return Comparison(f"{text} ({what})" if what else text, margin, tolerance)


def best(look: Look, table: str, rows: Sequence[str], metric: str) -> Value | None:
    """The highest over some rows; None if one of them has no number, since it might be that."""
    values = [look(Key(table, row, metric)) for row in rows]
    known = [value for value in values if value is not None]
    return max(known, key=lambda v: v.mean) if len(known) == len(values) else None


def worst(look: Look, table: str, rows: Sequence[str], metric: str) -> Value | None:
    """The lowest over some rows; None if one of them has no number."""
    values = [look(Key(table, row, metric)) for row in rows]
    known = [value for value in values if value is not None]
    return min(known, key=lambda v: v.mean) if len(known) == len(values) else None


def combined(name: str, parts: Sequence[Value | None], weights: Sequence[float]) -> Value | None:
    """A weighted sum of numbers, under a name of its own."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    mean = sum(w * part.mean for w, part in zip(weights, known, strict=True))
    squares = sum((w * part.tolerance) ** 2 for w, part in zip(weights, known, strict=True))
    return Value(mean, math.sqrt(squares), name)


def beats(
    look: Look, table: str, rows: Sequence[str], others: Sequence[str], metrics: Sequence[str]
) -> list[Comparison]:
    """For each metric, the best of some rows is above the best of others."""
    return [
        higher(best(look, table, rows, m), best(look, table, others, m), what=heading(m))
        for m in metrics
    ]


def each_beats(
    look: Look, table: str, rows: Sequence[str], other: str, metrics: Sequence[str]
) -> list[Comparison]:
    """For each metric and row, the row is above another one."""
    return [
        comparison for row in rows for comparison in beats(look, table, [row], [other], metrics)
    ]


def ordered(look: Look, table: str, rows: Sequence[str], metric: str) -> list[Comparison]:
    """The metric rises from each row to the next."""
    values = [look(Key(table, row, metric)) for row in rows]
    return [higher(high, low, what=heading(metric)) for low, high in itertools.pairwise(values)]


def weaker_than(
    look: Look, places: Sequence[tuple[str, str]], strong: tuple[str, str], weak: tuple[str, str]
) -> list[Comparison]:
    """Accuracy under the strong attack is lower, row by row.

    Args:
      look: numbers.
      places: (row's name in the strong attack's table, in the weak one's).
      strong, weak: (table, metric).
    """
    made = []
    for in_strong, in_weak in places:
        low = look(Key(strong[0], in_strong, strong[1]))
        high = look(Key(weak[0], in_weak, weak[1]))
        made.append(higher(high, low, what=f"{heading(weak[1])} against {heading(strong[1])}"))
    return made
