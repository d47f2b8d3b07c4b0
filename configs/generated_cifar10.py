"""A strong public recipe for CIFAR-10 with generated images: TRADES on WideResNet-28-10.

    python -m cat_jax.main --config=configs/generated_cifar10.py:trades \\
        --workdir=runs/generated_trades --config.extra_data.path=1m.npz \\
        --config.evaluation=natural,standard

    variant     row                                   natural  AutoAttack
    trades      1M images, 400 epochs, batch 512         91.1        63.4
    trades      20M images, 2400 epochs, batch 2048      92.4        67.3
    cat_cent    CAT_cent in the place of TRADES             -           -
    cat_cw      CAT_cw in the place of TRADES               -           -

The rows are those of Wang et al. (2023), "Better Diffusion Models Further Improve Adversarial
Training", and the settings are those of the command in github.com/wzekai99/DM-Improves-AT: SiLU,
beta 5, label smoothing 0.1, Nesterov's momentum, weight decay 5e-4 on kernels, a cosine rate that
peaks at 0.2 after 10 epochs, and a moving average of 0.995, whose rows are `best_average` and
`last_average`. 70% of each batch are generated: its README links the .npz files. An epoch is 50,000
images, generated ones included.

Three things differ: the attack runs batch norm in inference mode, there in training mode without
an update of the statistics; batch norm keeps 0.9 of its old statistics, there 0.99; the average
has averages of the statistics, there those of the classifier.

PreAct ResNet-18, `--config.classifier.name=PreActResNet18`, takes a tenth of the time. `cat_cent`
and `cat_cw` put CAT in the place of TRADES, with CAT's own batch-norm modes; nobody has published
them.
"""

from ml_collections import ConfigDict

from cat_jax.configs import default, preact_cifar10

VARIANTS = {
    "trades": default.VARIANTS["trades"] | {"attack.start": "uniform"},
    "cat_cent": default.VARIANTS["cat_cent"],
    "cat_cw": default.VARIANTS["cat_cw"],
}


def get_config(variant: str = "cat_cw") -> ConfigDict:
    """Returns the config of one of `VARIANTS`."""
    config = preact_cifar10.base()
    config.classifier.update(name="DMWideResNet", depth=28, widen_factor=10, activation="silu")
    config.extra_data.update(path="1m.npz", share=0.7)
    config.num_validation = 1024
    config.augment = "crop_flip_zero"
    config.method.update(beta=5.0, label_smoothing=0.1)
    config.batch_size = 512
    config.num_epochs = 400
    config.optimizer.update(learning_rate=0.2, nesterov=True, decay="kernels")
    for optimizer in (config.optimizer, config.mask_optimizer):
        optimizer.update(schedule="cosine", warmup_epochs=10.0)
    config.average.update(kind="moving", decay=0.995, warmup=True, start_epochs=10)
    config.validation.chosen_by = "robust"
    return default.apply_variant(config, variant, VARIANTS)
