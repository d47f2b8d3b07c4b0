"""An attack together with what a table says about it."""

from collections.abc import Callable
from typing import Any, NamedTuple


class NamedAttack(NamedTuple):
    """An attack as a table names it.

    Attributes:
      name: such as "pgd20".
      attack: (logits_fn, images, labels, keys) -> images, or images and the forward passes that
        each took, int32 [B]; None for natural accuracy.
      epsilon: radius that it must keep.
      clipped: must its images stay in [0, 1]?
      after: name of the attack before it in a cascade: it is only run on the examples that are
        still right after that one, and its own flags are then those of both.
      queries: forward passes on each example, where the attack does not count them.
    """

    name: str
    attack: Callable[..., Any] | None
    epsilon: float = 0.0
    clipped: bool = True
    after: str = ""
    queries: int = 1
