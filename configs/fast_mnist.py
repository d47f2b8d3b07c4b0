"""Robust MNIST in an hour of one CPU core at most: a small network, 10 attack steps, one cycle.

    python -m cat_jax.main --config=configs/fast_mnist.py:at --workdir=runs/fast_mnist_at

The network is that of Wong et al. (2020). Of their recipe come the few attack steps and the cyclic
rate; the training radius of 0.35 is above the 0.3 of the tests, grows over the first half epoch,
and x' stays in [0, 1]. This setting was tried with `at` alone. The variants differ in their epochs
only, because they train for equal time: a step with a mask network takes seven times as long.
"""

from ml_collections import ConfigDict

from cat_jax.configs import default, mnist

# Epochs that take about as long as 24 of `at`.
VARIANTS = {
    "at": default.VARIANTS["at"],
    "trades": default.VARIANTS["trades"] | {"num_epochs": 20},
    "cat_cent": default.VARIANTS["cat_cent"] | {"num_epochs": 4},
    "cat_cw": default.VARIANTS["cat_cw"] | {"num_epochs": 4},
}


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
    # As the training attack and the tests.
    config.validation.clip = True
    config.test.unclipped = False
    return default.apply_variant(config, variant, VARIANTS)
