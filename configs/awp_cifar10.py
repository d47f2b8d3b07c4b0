"""A strong public recipe for an 18-layer network on CIFAR-10 without extra data: TRADES-AWP.

    python -m cat_jax.main --config=configs/awp_cifar10.py:trades --workdir=runs/awp_trades \\
        --config.evaluation=natural,standard

    variant     row                           natural  AutoAttack
    trades      TRADES-AWP, best checkpoint      82.8        51.9
    trades      TRADES-AWP, last checkpoint      82.7        51.8
    cat_cent    CAT_cent-AWP                        -           -
    cat_cw      CAT_cw-AWP                          -           -

The rows are those of TRADES-AWP (Wu et al. 2020) on ResNet-18 in AWP/README.md of
github.com/MTandHJ/PyTorch-Robust, which chose the best checkpoint on the test set. Its settings:
200 epochs of batches of 128, learning rate 0.1 divided by 10 at epochs 100 and 150, weight decay
5e-4, beta 6, and weight perturbation of 0.005 after 10 epochs. `cat_cent` and `cat_cw` put CAT in
the place of TRADES, with CAT's own attack and batch-norm modes; nobody has published them.

The run also evaluates a moving average of the weights as `best_average` and `last_average`, which
that recipe lacks. `--config.classifier.name=PreActResNet18` is the network of the paper's tables;
in that repository, weight perturbation sometimes stopped the training of ResNet-18.
"""

from ml_collections import ConfigDict

from cat_jax.configs import default, preact_cifar10

VARIANTS = {
    "trades": default.VARIANTS["trades_awp"] | {"method.beta": 6.0, "attack.start": "uniform"},
    "cat_cent": default.VARIANTS["cat_awp"],
    "cat_cw": default.VARIANTS["cat_awp"] | default.VARIANTS["cat_cw"],
}


def get_config(variant: str = "cat_cw") -> ConfigDict:
    """Returns the config of one of `VARIANTS`."""
    config = preact_cifar10.base()
    config.classifier.name = "ResNet18"
    config.augment = "crop_flip_zero"
    config.num_epochs = 200
    for optimizer in (config.optimizer, config.mask_optimizer):
        optimizer.drop_epochs = (100, 150)
    config.validation.chosen_by = "robust"
    config.average.update(kind="moving", decay=0.995, warmup=True)
    return default.apply_variant(config, variant, VARIANTS)
