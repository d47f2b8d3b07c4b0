"""Weights to attack, and the lines of results and checks that come of it."""

from typing import NamedTuple

from cat_jax.evaluation.result_lines import Part
from cat_jax.types import PyTree


class Weights(NamedTuple):
    """The variables of a classifier to attack, and their description in results.

    Attributes:
      variables: parameters and running statistics.
      attacked: first part of the lines of results.
      name: name of the checkpoint or file, for progress bars.
    """

    variables: PyTree
    attacked: Part
    name: str


class Examined(NamedTuple):
    """Lines of results.jsonl and checks.jsonl."""

    results: list[Part]
    checks: list[Part]

    def of(self, attacked: Part) -> "Examined":
        """The same lines for a checkpoint that has the same weights under another name."""
        return Examined(*([line | {"attacked": attacked} for line in part] for part in self))
