"""The paper's main table: PreAct ResNet-18 on CIFAR-10, 140 epochs of SGD.

    python -m cat_jax.main --config=configs/preact_cifar10.py:cat_cw --workdir=runs/rn18_cat_cw

Published (5 runs, best checkpoint chosen on the test set), beta 5, beta1 0.05: CAT_cw natural
84.2, FGSM 58.9, PGD-20 55.3, PGD-100 54.5, C&W 51.3; CAT_cent 84.1, 59.5, 55.6, 54.9, 50.8.
"""

from ml_collections import ConfigDict

from cat_jax.configs import default

VARIANTS = default.VARIANTS


def get_config(variant: str = "cat_cw") -> ConfigDict:
    """The config of one of `VARIANTS`."""
    config = default.get_config()
    config.dataset = "cifar10"
    config.num_validation = 1000
    config.augment = "crop_flip"
    config.classifier.name = "PreActResNet18"
    config.classifier.mean = (0.4914, 0.4822, 0.4465)
    config.classifier.std = (0.2471, 0.2435, 0.2616)
    config.mask_net.name = "ResNetMask"
    return default.apply_variant(config, variant, VARIANTS)
