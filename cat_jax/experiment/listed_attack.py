"""An attack of a suite as data."""

import dataclasses
from collections.abc import Mapping
from typing import Any

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
        """Whether the conditions of a result are those of the suite, at full precision."""
        if "search_precision" in conditions:
            return False
        arguments = dict(self.arguments)
        if "pixel_range" in arguments:
            arguments["clipped"] = arguments.pop("pixel_range") is not None
        restarts = max(self.num_restarts, 1) * arguments.pop("num_restarts", 1)
        expected = {"attack": self.name, **arguments}
        if self.function:
            expected["restarts"] = restarts
        return all(conditions.get(name) == value for name, value in expected.items())


NATURAL = Listed("natural")


def forward_passes(function: str, arguments: Mapping[str, Any]) -> int:
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
