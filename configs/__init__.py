"""Configurations, one file for each experiment; `default.py` is the whole schema.

Read this package as `cat_jax.configs`: `cat_jax/configs` is a link to this folder, so the
checkout, an editable install and the wheel hold the same files. A configuration that builds
on another one imports it by that name (`from cat_jax.configs import default`).
"""
