"""The config files that train on image data sets, and what their data sets are."""

import importlib

from cat_jax import data

SPECS = {
    "digits": data.Spec((8, 8, 1), 10, 1437),
    "mnist": data.Spec((28, 28, 1), 10, 60_000),
    "fast_mnist": data.Spec((28, 28, 1), 10, 60_000),
    "preact_cifar10": data.Spec((32, 32, 3), 10, 50_000),
    "wrn_cifar10": data.Spec((32, 32, 3), 10, 50_000),
    "fast_cifar10": data.Spec((32, 32, 3), 10, 50_000),
    "awp_cifar10": data.Spec((32, 32, 3), 10, 50_000),
    "generated_cifar10": data.Spec((32, 32, 3), 10, 50_000),
    "preact_cifar100": data.Spec((32, 32, 3), 100, 50_000),
    "svhn": data.Spec((32, 32, 3), 10, 73_257),
    "tiny_imagenet": data.Spec((64, 64, 3), 200, 100_000),
}
MODULES = {name: importlib.import_module(f"cat_jax.configs.{name}") for name in SPECS}
VARIANTS = [(name, variant) for name in SPECS for variant in MODULES[name].VARIANTS]
