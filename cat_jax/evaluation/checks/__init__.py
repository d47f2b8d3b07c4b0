"""Checks for false robustness (gradient masking) and for failed training."""

from cat_jax.evaluation.checks.classifier import examine
from cat_jax.evaluation.checks.comparison import compare
from cat_jax.evaluation.checks.during_training import num_answers, warnings, zero_gradients
from cat_jax.evaluation.checks.findings import Finding

__all__ = ["Finding", "compare", "examine", "num_answers", "warnings", "zero_gradients"]
