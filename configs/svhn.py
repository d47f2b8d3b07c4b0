"""SVHN, which the paper does not have: PreAct ResNet-18, radius 8/255.

    python -m cat_jax.data --dataset=tfds:svhn_cropped
    python -m cat_jax.main --config=configs/svhn.py:cat_cw --workdir=runs/svhn_cat_cw

The first command needs TensorFlow, once. All variants have one setting: that of the paper's
CIFAR-10 table with the customary changes for SVHN, a learning rate of 0.01, attack steps of 1/255
and no augmentation, because a mirrored 2 is none. cat_jax has not measured numbers to expect.
"""

from typing import Any

from ml_collections import ConfigDict

from cat_jax.configs import default, preact_cifar10

BETA: dict[str, Any] = {"method.beta": 6.0}  # TRADES and FAT as published.
VARIANTS = default.variants({"trades": BETA, "fat": BETA})


def get_config(variant: str = "cat_cw") -> ConfigDict:
    """Returns the config of one of `VARIANTS`."""
    config = preact_cifar10.base()
    config.dataset = "tfds:svhn_cropped"
    config.augment = "none"
    config.attack.step_size = "1/255"
    config.classifier.mean = (0.4377, 0.4438, 0.4728)
    config.classifier.std = (0.1980, 0.2010, 0.1970)
    for optimizer in (config.optimizer, config.mask_optimizer):
        optimizer.learning_rate = 0.01
    return default.apply_variant(config, variant, VARIANTS)
