"""CAT on scikit-learn's handwritten digits: 1,797 real 8x8 images, no download.

    python -m cat_jax.main --config=configs/digits.py --workdir=runs/digits
    python -m cat_jax.main --config=configs/digits.py:standard --workdir=runs/digits_standard

This first look is not in the paper. It takes two minutes on two CPU cores. Radius 0.15.
"""

from ml_collections import ConfigDict

from cat_jax.configs import default

VARIANTS = default.variants({"trades": {"method.beta": 6.0}, "fat": {"method.beta": 6.0}})


def get_config(variant: str = "cat_cent") -> ConfigDict:
    """Returns the config of one of `VARIANTS`."""
    config = default.get_config()
    config.threat.epsilon = "0.15"
    config.dataset = "digits"
    config.num_validation = 144
    config.method.beta = 2.0
    config.method.beta1 = 0.05
    config.attack.step_size = "epsilon/5"
    config.attack.num_steps = 10
    config.batch_size = 128
    config.num_epochs = 60
    for optimizer in (config.optimizer, config.mask_optimizer):
        optimizer.name = "adam"
        optimizer.weight_decay = 0.0
        optimizer.drop_epochs = (45,)
    config.optimizer.learning_rate = 2e-3
    # Because a faster mask closes before the attack is strong: 776 steps at 1e-3 end with M = 0.
    config.mask_optimizer.learning_rate = 1e-4
    config.validation.every_epochs = 10
    config.validation.step_size = "epsilon/5"
    # Without Square, which takes longer than training.
    config.evaluation = "natural,fgsm,pgd20,pgd100,cw_inf,curve"
    config.test.step_size = "epsilon/10"
    config.test.batch_size = 360
    config.log_every = 10
    return default.apply_variant(config, variant, VARIANTS)
