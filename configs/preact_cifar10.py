"""The paper's main table: PreAct ResNet-18 on CIFAR-10.

    python -m cat_jax.main --config=configs/preact_cifar10.py:cat_cw --workdir=runs/rn18_cat_cw

The published rows chose the best checkpoint on the test set; those of CAT are means of 5 runs.
`--config.method.beta1=0.1` and `0.3` give the other rows of CAT.

    variant     row                     natural  FGSM  PGD-20  PGD-100  C&W
    at          AT                         83.0  57.3    52.9     51.9  50.9
    trades      TRADES(beta=6)             82.8  57.6    52.8     51.7  50.9
    mart        MART(lambda=5)             83.0  60.2    53.9     52.3  49.9
    fat         FAT(beta=6)                85.1  58.3    52.1     50.5  50.4
    cat_cent    CAT_cent(beta1=0.05)       84.1  59.5    55.6     54.9  50.8
    cat_cw      CAT_cw(beta1=0.05)         84.2  58.9    55.3     54.5  51.3

`a1` (without mask and without the weight of Eq. 8), `a2` (without mask) and `cat_kl` (KL attack)
are the paper's ablations, which it prints as figures. `at` follows Rice et al. (2020), whose log
has 82.9 natural and 53.5 PGD-10; its early stopping is the best checkpoint. `at_awp` (81.2 natural
and 55.4 PGD-20 in its repository) and `trades_awp` follow Wu et al. (2020). `alp`, `mma`, `cat_awp`
and `n_fgsm` (de Jorge et al. 2022) have no published row.

RobustBench lists for `fast` (Wong et al. 2020) 83.3 natural and 43.2 AutoAttack, for `grad_align`
(Andriushchenko & Flammarion 2020) 79.8 and 43.9. The learning rates of `fast` and `n_fgsm` peak at
2/5 of training here, as that of `grad_align` does, and in the middle there.

`at_l2`, `cat_cent_l2` and `cat_cw_l2` train and test in the L2 ball of radius 0.5 instead, and have
no published row.

Each variant has the hyper-parameters of its authors' code. Every classifier is PreAct ResNet-18, as
in the paper's table; the code of MART and FAT has `--config.classifier.name=ResNet18`.
"""

from typing import Any

from ml_collections import ConfigDict

from cat_jax.configs import default

# TRADES and its descendants: radius 0.031, no normalisation, zero padding before the crop.
TRADES: dict[str, Any] = {
    "attack.epsilon": "0.031",
    "attack.step_size": "0.007",
    "classifier.normalize": False,
    "augment": "crop_flip_zero",
}
RICE: dict[str, Any] = {
    "num_epochs": 200,
    "optimizer.drop_epochs": (100, 150),
    "optimizer.per": "iteration",
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "at": RICE,
    "trades": TRADES
    | {
        "method.beta": 6.0,
        "num_epochs": 76,
        "optimizer.weight_decay": 2e-4,
        "optimizer.drop_epochs": (74, 89, 99),
    },
    "mart": TRADES
    | {
        "method.weight": 5.0,
        "num_epochs": 120,
        "optimizer.learning_rate": 0.01,
        "optimizer.weight_decay": 3.5e-3,
        "optimizer.drop_epochs": (74, 89, 99),
    },
    "fat": TRADES
    | {
        "method.beta": 6.0,
        "num_epochs": 85,
        "optimizer.weight_decay": 2e-4,
        "optimizer.drop_epochs": (74, 89),
    },
    "mma": {  # 50,000 steps of 128 on 45,000 images.
        "num_epochs": 142,
        "optimizer.learning_rate": 0.3,
        "optimizer.weight_decay": 2e-4,
        "optimizer.drop_epochs": (57, 85, 114),
        "optimizer.drop_factors": (0.3, 1 / 3, 0.3),
    },
    "at_awp": RICE,
    "trades_awp": TRADES
    | RICE
    | {"method.beta": 6.0, "attack.epsilon": "8/255", "attack.step_size": "2/255"},
}
# Peak of the learning rate, and epochs, of training with one step.
for _name, _rate, _epochs in (("fast", 0.2, 15), ("n_fgsm", 0.2, 30), ("grad_align", 0.3, 30)):
    PUBLISHED[_name] = {
        "num_epochs": _epochs,
        "optimizer.learning_rate": _rate,
        "optimizer.schedule": "cyclic",
        "optimizer.per": "iteration",
    }
VARIANTS = default.variants(PUBLISHED)


# An L2 ball of radius 0.5: steps of Rice et al. (2020), and tests with steps of a tenth.
L2: dict[str, Any] = {
    "threat.norm": "l2",
    "threat.epsilon": "0.5",
    "attack.step_size": "epsilon/4",
    "validation.step_size": "epsilon/4",
    "test.step_size": "epsilon/10",
    "test.cw_epsilon": "epsilon",
}
for _name in ("at", "cat_cent", "cat_cw"):
    VARIANTS[f"{_name}_l2"] = VARIANTS[_name] | L2


def get_config(variant: str = "cat_cw") -> ConfigDict:
    """Returns the config of one of `VARIANTS`."""
    return default.apply_variant(base(), variant, VARIANTS)


def base() -> ConfigDict:
    """Returns the setting that all variants share, which is that of CAT."""
    config = default.get_config()
    config.dataset = "cifar10"
    config.num_validation = 1000
    config.augment = "crop_flip"
    config.classifier.name = "PreActResNet18"
    config.classifier.mean = (0.4914, 0.4822, 0.4465)
    config.classifier.std = (0.2471, 0.2435, 0.2616)
    config.mask_net.name = "ResNetMask"
    config.test.cw_epsilon = "0.031"
    return config
