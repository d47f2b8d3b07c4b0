"""Robust MNIST in an hour of one CPU core: a small network, 10 attack steps, one cycle.

    python -m cat_jax.main --config=configs/fast_mnist.py:at --workdir=runs/fast_mnist_at

The network is that of Wong et al. (2020). Of their recipe come the few attack steps and the cyclic
rate; the training radius of 0.35 is above the 0.3 of the tests, grows over the first half epoch,
and x' stays in [0, 1]. All variants have one setting, which was tried with `at` alone; a step with
a mask network costs several times as much as one without.
"""

from ml_collections import ConfigDict

from cat_jax.configs import default, mnist

VARIANTS = {name: default.VARIANTS[name] for name in ("at", "trades", "cat_cent", "cat_cw")}


def get_config(variant: str = "at") -> ConfigDict:
    """Returns the config of one of `VARIANTS`."""
    config = mnist.base()
    config.conventions = "warmup"
    config.classifier.name = "StridedCNN"
    config.attack.epsilon = "0.35"
    config.attack.step_size = "epsilon/8"
    config.attack.num_steps = 10
    config.attack.clip = True
    config.num_epochs = 24
    for optimizer in (config.optimizer, config.mask_optimizer):
        optimizer.learning_rate = 2e-3
        optimizer.schedule = "cyclic"
        optimizer.per = "iteration"
    config.validation.every_epochs = 2.0
    config.test.unclipped = False
    return default.apply_variant(config, variant, VARIANTS)
