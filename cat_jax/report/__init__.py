"""Reads what runs have left behind, and prints it beside the paper. Imports no jax."""
