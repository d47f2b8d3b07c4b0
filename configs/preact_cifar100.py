"""The paper's CIFAR-100 table: PreAct ResNet-18, 120 epochs.

    python -m cat_jax.main --config=configs/preact_cifar100.py:cat_cw --workdir=runs/c100_cat_cw

Published, beta 5, beta1 0.05: CAT_cw natural 58.9, FGSM 31.5, PGD-20 29.1, PGD-100 28.5, C&W
26.3; CAT_cent 58.5, 31.5, 28.9, 28.5, 25.6.
"""

from ml_collections import ConfigDict

from cat_jax.configs import default, preact_cifar10

VARIANTS = preact_cifar10.VARIANTS


def get_config(variant: str = "cat_cw") -> ConfigDict:
    """The config of one of `VARIANTS`."""
    config = preact_cifar10.get_config(variant)
    config.dataset = "cifar100"
    config.num_epochs = 120
    config.classifier.mean = (0.50707516, 0.48654887, 0.44091784)
    config.classifier.std = (0.26733429, 0.25643846, 0.27615047)
    default.drop_learning_rates(config, paper=(100, 110), released=(100, 110))
    return config
