"""Checks that expose a training gone wrong, and a robustness that is not there."""

from cat_jax.checks.training import warnings, zero_gradients

__all__ = ["warnings", "zero_gradients"]
