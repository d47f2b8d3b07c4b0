"""Calibrated adversarial training in JAX and Flax: see README.md."""

__version__ = "0.1.0"
