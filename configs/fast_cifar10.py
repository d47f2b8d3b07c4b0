"""CIFAR-10 without a GPU: four methods at equal time, with WideResNet-10-1 and 3 attack steps.

    python -m cat_jax.main --config=configs/fast_cifar10.py:at --workdir=runs/fast_cifar10_at

On one CPU core with AVX-512 a step takes 0.75 s (`at`), 1.0 s (`trades`) or 1.7 s (CAT). CAT gets
3 epochs and `at` 7, so that each variant takes 32 to 38 minutes. Under AutoAttack, on 1,000 test
images, `at` has 30.2, `trades` 26.2, `cat_cent` 20.4 and `cat_cw` 20.0. This compares methods at
a small budget; the paper's networks and lengths are in `preact_cifar10.py` and `wrn_cifar10.py`.
"""

from ml_collections import ConfigDict

from cat_jax.configs import default, preact_cifar10

# Epochs that take about as long as 7 of `at`.
VARIANTS = {
    "at": default.VARIANTS["at"],
    "trades": default.VARIANTS["trades"] | {"method.beta": 6.0, "num_epochs": 5},
    "cat_cent": default.VARIANTS["cat_cent"] | {"num_epochs": 3},
    "cat_cw": default.VARIANTS["cat_cw"] | {"num_epochs": 3},
}


def get_config(variant: str = "at") -> ConfigDict:
    """Returns the config of one of `VARIANTS`."""
    config = preact_cifar10.base()
    config.classifier.name = "WideResNet"
    config.classifier.depth = 10
    config.classifier.widen_factor = 1
    config.mask_net.name = "SmallMask"
    config.attack.step_size = "epsilon/2"
    config.attack.num_steps = 3
    config.num_epochs = 7
    config.optimizer.learning_rate = 0.2
    config.optimizer.schedule = "cyclic"
    config.optimizer.per = "iteration"
    # As for digits: with a faster rate the mask closes before the attack is strong.
    config.mask_optimizer.name = "adam"
    config.mask_optimizer.learning_rate = 1e-4
    config.mask_optimizer.weight_decay = 0.0
    return default.apply_variant(config, variant, VARIANTS)
