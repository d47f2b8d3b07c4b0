"""Turns a resolved config into the parts of an experiment.

Here and in `settings.py` configs end: every other module takes plain arguments.
"""

from cat_jax.build.evaluation import NATURAL, evaluation_attacks, validation_attacks
from cat_jax.build.experiment import Experiment, experiment
from cat_jax.build.methods import METHODS, build_attack, build_method
from cat_jax.build.networks import CLASSIFIERS, MASK_NETS, build_networks
from cat_jax.build.optimizers import build_optimizer

__all__ = [
    "CLASSIFIERS",
    "MASK_NETS",
    "METHODS",
    "NATURAL",
    "Experiment",
    "build_attack",
    "build_method",
    "build_networks",
    "build_optimizer",
    "evaluation_attacks",
    "experiment",
    "validation_attacks",
]
