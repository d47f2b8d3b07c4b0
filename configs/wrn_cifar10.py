"""The paper's WideResNet-34-10 table on CIFAR-10.

    python -m cat_jax.main --config=configs/wrn_cifar10.py:cat_cw --workdir=runs/wrn_cat_cw

Published (5 runs, best checkpoint chosen on the test set), beta 5, beta1 0.05: CAT_cw natural
86.4, FGSM 62.7, PGD-20 59.7, PGD-100 58.7, C&W 56.0. The published code drops the learning
rate at epochs 100 and 110, the text says 100 and 120.
"""

from ml_collections import ConfigDict

from cat_jax.configs import default, preact_cifar10

VARIANTS = preact_cifar10.VARIANTS


def get_config(variant: str = "cat_cw") -> ConfigDict:
    """The config of one of `VARIANTS`."""
    config = preact_cifar10.get_config(variant)
    config.classifier.name = "WideResNet"
    default.drop_learning_rates(config, paper=(100, 120), released=(100, 110))
    return config
