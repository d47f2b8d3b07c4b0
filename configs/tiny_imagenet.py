"""Tiny ImageNet, which the paper does not have: 200 classes, 64x64 pixels, PreAct ResNet-18.

    python -m cat_jax.data --dataset=tiny_imagenet --source=Downloads
    python -m cat_jax.main --config=configs/tiny_imagenet.py:cat_cw --workdir=runs/tiny_cat_cw

The first command reads tiny-imagenet-200.zip from the folder. The published validation split is the
test split. The setting is that of the paper's CIFAR-100 table; a step costs four times as much.
cat_jax has not measured numbers to expect.
"""

from typing import Any

from ml_collections import ConfigDict

from cat_jax.configs import default, preact_cifar10

BETA: dict[str, Any] = {"method.beta": 6.0}  # TRADES and FAT as published.
VARIANTS = default.variants({"trades": BETA, "fat": BETA})


def get_config(variant: str = "cat_cw") -> ConfigDict:
    """Returns the config of one of `VARIANTS`."""
    config = preact_cifar10.base()
    config.dataset = "tiny_imagenet"
    config.num_validation = 2000
    config.num_epochs = 120
    config.classifier.mean = (0.4802, 0.4481, 0.3975)
    config.classifier.std = (0.2770, 0.2691, 0.2821)
    for optimizer in (config.optimizer, config.mask_optimizer):
        optimizer.drop_epochs = (100, 110)
    return default.apply_variant(config, variant, VARIANTS)
