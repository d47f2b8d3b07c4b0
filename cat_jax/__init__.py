"""Calibrated adversarial training in JAX and Flax: see README.md."""
