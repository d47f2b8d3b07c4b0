"""Attacks on trained networks, their results, and checks of both."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cat_jax.evaluation.arrays import evaluate as evaluate
    from cat_jax.evaluation.evaluator import Evaluator as Evaluator

__all__ = ["Evaluator", "checks", "evaluate"]


def __getattr__(name: str) -> Any:
    """Imports a name at its first use, because the report reads results without JAX."""
    if name == "evaluate":
        from cat_jax.evaluation.arrays import evaluate

        return evaluate
    if name == "Evaluator":
        from cat_jax.evaluation.evaluator import Evaluator

        return Evaluator
    if name == "checks":
        return importlib.import_module("cat_jax.evaluation.checks")
    raise AttributeError(f"module 'cat_jax.evaluation' has no attribute {name!r}")
