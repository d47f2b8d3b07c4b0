"""The paper's CIFAR-100 table: PreAct ResNet-18, 120 epochs.

    python -m cat_jax.main --config=configs/preact_cifar100.py:cat_cw --workdir=runs/c100_cat_cw

The published rows; `--config.method.beta1=0.1` gives the other rows of CAT:

    variant     row                     natural  FGSM  PGD-20  PGD-100   C&W
    at          AT                        55.13 29.77   27.51    27.01 25.91
    cat_cent    CAT_cent(beta1=0.05)      58.52 31.45   28.93    28.48 25.55
    cat_cw      CAT_cw(beta1=0.05)        58.90 31.51   29.11    28.50 26.25

`at_awp` has 53.8 natural and 30.7 PGD-20 in its repository. The other variants are those of
`preact_cifar10.py` and have no published row.
"""

from ml_collections import ConfigDict

from cat_jax.configs import default, preact_cifar10

VARIANTS = preact_cifar10.VARIANTS


def get_config(variant: str = "cat_cw") -> ConfigDict:
    """Returns the config of one of `VARIANTS`."""
    config = preact_cifar10.base()
    config.dataset = "cifar100"
    config.num_epochs = 120
    config.classifier.mean = (0.50707516, 0.48654887, 0.44091784)
    config.classifier.std = (0.26733429, 0.25643846, 0.27615047)
    for optimizer in (config.optimizer, config.mask_optimizer):
        optimizer.drop_epochs = (100, 110)
    return default.apply_variant(config, variant, VARIANTS)
