"""Attacks on trained networks, and their results."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cat_jax.evaluation.arrays import evaluate as evaluate
    from cat_jax.evaluation.evaluator import Evaluator as Evaluator

__all__ = ["Evaluator", "evaluate"]


def __getattr__(name: str) -> Any:
    """Imports a name at its first use, because the report reads results without JAX."""
    if name == "evaluate":
        from cat_jax.evaluation.arrays import evaluate

        return evaluate
    if name == "Evaluator":
        from cat_jax.evaluation.evaluator import Evaluator

        return Evaluator
    raise AttributeError(f"module 'cat_jax.evaluation' has no attribute {name!r}")
