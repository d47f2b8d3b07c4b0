"""The command line of `python -m cat_jax.main`."""
