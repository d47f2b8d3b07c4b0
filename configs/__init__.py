"""Configs, one file for each experiment; `default.py` is the complete schema.

Import this package as `cat_jax.configs`. `cat_jax/configs` is a link to this folder, so the
checkout, an editable install and the wheel have the same files. A config that extends another one
imports it by that name (`from cat_jax.configs import default`).
"""
