"""Reads the files of runs and presents them beside published numbers; does not import jax."""
