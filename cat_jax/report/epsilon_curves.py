"""Curves of accuracy against epsilon, from their points in results.jsonl."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cat_jax.experiment import labels
from cat_jax.report import tables
from cat_jax.storage import lines
from cat_jax.storage.lines import Line


class Point(NamedTuple):
    """Radius, accuracy and its 95% interval, as fractions."""

    epsilon: float
    accuracy: float
    low: float
    high: float


class Curve(NamedTuple):
    """Accuracies of the same weights on the same images at growing radii.

    Attributes:
      name: of the weights, such as "best".
      points: from the smallest radius.
      conditions: of the last point.
    """

    name: str
    points: tuple[Point, ...]
    conditions: Mapping[str, Any]

    @property
    def caption(self) -> str:
        """One sentence on the attack and the images."""
        conditions = self.conditions
        return (
            f"Under PGD with {conditions['num_steps']} steps, on {labels.images(conditions)} test "
            "images; the step size grows with epsilon. An image that is fooled at a radius counts "
            "as fooled at all larger ones. Bands are 95% Wilson intervals."
        )


def curves(results: Sequence[Line]) -> list[Curve]:
    """The curves of a run, without that of last/ if it has the weights of best/.

    Args:
      results: lines of results.jsonl with conditions.
    """
    ids = [id(line) for line in tables.distinct(results) if lines.is_curve(line)]
    groups: dict[tuple[str, str, int], list[Line]] = {}
    for name, line in zip(labels.all_weights(results), results, strict=True):
        if id(line) not in ids:
            continue
        conditions = line["conditions"]
        group = (name, labels.images(conditions), conditions["seed"])
        groups.setdefault(group, []).append(line)
    return [
        _curve(name, last, of_group)
        for (name, *_), of_group in groups.items()
        for last in of_group
        if not any(_continues(other, last) for other in of_group)
    ]


def _curve(name: str, last: Line, of_group: Sequence[Line]) -> Curve:
    """The curve that ends at the line `last`, which names the other points."""
    own = [line for line in of_group if line is last or _continues(last, line)]
    points = [
        Point(
            line["conditions"]["epsilon"], line["outcome"]["accuracy"], *line["outcome"]["interval"]
        )
        for line in own
    ]
    return Curve(name, tuple(sorted(points)), last["conditions"])


def _continues(line: Line, earlier: Line) -> bool:
    """Whether a point comes after an earlier one of the same curve."""
    own, others = _radii(line), _radii(earlier)
    return len(own) > len(others) and own[: len(others)] == others


def _radii(line: Line) -> list[tuple[float, float]]:
    """(epsilon, step size) of the points of the curve up to this one."""
    conditions = line["conditions"]
    every = [*conditions.get("after", ()), conditions]
    return [(point["epsilon"], point["step_size"]) for point in every]
