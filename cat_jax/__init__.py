"""Calibrated Adversarial Training in JAX and Flax: training, attacks and robustness evaluation.

The rooms below are imported when they are first used: `import cat_jax; cat_jax.attacks.pgd`.
"""

import importlib
from typing import Any

__version__ = "0.1.0"
__all__ = [
    "attacks",
    "data",
    "evaluation",
    "losses",
    "methods",
    "networks",
    "objectives",
    "register",
    "weights",
]


def __getattr__(name: str) -> Any:
    if name == "register":
        return importlib.import_module("cat_jax.runtime.registry").register
    if name in __all__:
        return importlib.import_module(f"cat_jax.{name}")
    raise AttributeError(f"module 'cat_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
