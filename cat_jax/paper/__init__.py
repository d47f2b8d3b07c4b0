"""Fills the paper's tables and figures from runs. Imports no jax."""
