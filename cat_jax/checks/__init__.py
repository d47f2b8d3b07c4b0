"""Checks that expose a training gone wrong, and a robustness that is not there."""

from cat_jax.checks.budget import budget
from cat_jax.checks.classifier import examine
from cat_jax.checks.findings import Finding
from cat_jax.checks.results import compare
from cat_jax.checks.training import warnings, zero_gradients

__all__ = ["Finding", "budget", "compare", "examine", "warnings", "zero_gradients"]
