"""Curves of accuracy against epsilon, from their points in results.jsonl."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cat_jax.experiment import labels
from cat_jax.report import tables
from cat_jax.storage import lines
from cat_jax.storage.lines import Line

AGREEMENT = 0.02  # Largest difference between FMN and APGD that is not worth a remark.


class Point(NamedTuple):
    """Radius, accuracy and its 95% interval, as fractions."""

    epsilon: float
    accuracy: float
    low: float
    high: float


class Curve(NamedTuple):
    """Accuracies of the same weights on the same images at growing radii.

    Attributes:
      name: name of the weights, such as "best".
      points: results of FMN, from the smallest radius.
      marks: results of APGD at some of the radii, from the smallest.
      conditions: conditions of one of the points.
    """

    name: str
    points: tuple[Point, ...]
    marks: tuple[Point, ...]
    conditions: Mapping[str, Any]

    @property
    def caption(self) -> str:
        """One sentence on the attacks and the images."""
        return (
            f"Under FMN with {self.conditions['num_steps']} steps (line) and APGD (crosses) in "
            f"{labels.NORMS[self.conditions['norm']]}, on "
            f"{labels.images(self.conditions, 'test images')}. Bands are 95% Wilson intervals."
        )

    @property
    def comparison(self) -> str:
        """One sentence on the radii where FMN and APGD differ, because the lower one is valid."""
        line = {point.epsilon: point.accuracy for point in self.points}
        texts = []
        for mark in self.marks:
            fmn = line.get(mark.epsilon, mark.accuracy)
            if abs(fmn - mark.accuracy) > AGREEMENT + 1e-9:
                weaker = "FMN" if fmn > mark.accuracy else "APGD"
                texts.append(
                    f"{weaker} is weaker at {labels.radius(mark.epsilon)} (FMN leaves "
                    f"{100 * fmn:.1f}%, APGD {100 * mark.accuracy:.1f}%)"
                )
        if not self.marks:
            return ""
        return f"{self.name}: {'; '.join(texts) or 'FMN and APGD agree within 2 points'}."


def curves(results: Sequence[Line]) -> list[Curve]:
    """The curves of a run, without that of last/ if it has the weights of best/.

    Args:
      results: lines of results.jsonl with conditions.
    """
    ids = [id(line) for line in tables.distinct(results) if lines.is_curve(line)]
    groups: dict[tuple[str, str, int, str], list[Line]] = {}
    for name, line in zip(labels.all_weights(results), results, strict=True):
        if id(line) in ids:
            conditions = line["conditions"]
            group = (name, labels.images(conditions), conditions["seed"], conditions["norm"])
            groups.setdefault(group, []).append(line)
    several_norms = len({norm for *_, norm in groups}) > 1
    return [
        _curve(f"{name}, {labels.NORMS[norm]}" if several_norms else name, of_group)
        for (name, *_, norm), of_group in groups.items()
        if any(line["conditions"]["attack"] == lines.CURVE for line in of_group)
    ]


def tested(results: Iterable[Line], curves: Sequence[Curve]) -> list[float]:
    """The radii of other results in the norms of the curves."""
    norms = {curve.conditions["norm"] for curve in curves}
    every = (line["conditions"] for line in results if not lines.is_curve(line))
    return sorted({c["epsilon"] for c in every if c.get("norm") in norms})


def _curve(name: str, of_group: Sequence[Line]) -> Curve:
    points, marks = (_points(of_group, attack) for attack in (lines.CURVE, lines.MARKS))
    line = next(line for line in of_group if line["conditions"]["attack"] == lines.CURVE)
    return Curve(name, points, marks, line["conditions"])


def _points(of_group: Sequence[Line], attack: str) -> tuple[Point, ...]:
    """The lowest accuracy at each radius: evaluations of several radii may share one."""
    points: dict[float, Point] = {}
    for line in of_group:
        conditions, outcome = line["conditions"], line["outcome"]
        if conditions["attack"] == attack:
            point = Point(conditions["epsilon"], outcome["accuracy"], *outcome["interval"])
            points[point.epsilon] = min(point, points.get(point.epsilon, point))
    return tuple(sorted(points.values()))
