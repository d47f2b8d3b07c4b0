"""The whole schema: every field, its unit, and where the paper or the published code speaks of it.

A config file starts from `get_config()`, changes fields, and applies one of its variants:
`--config=configs/digits.py:standard`. Any field can be overridden: `--config.method.beta1=0.1`.

Radii and step sizes are strings on the [0, 1] pixel scale, "8/255" or "0.0314". Fields that
are None follow `conventions`; the tables `by_convention` say what that means.
"""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from cat_jax.types import UsageError

# What most config files offer. A method without a mask network has M = 1.
VARIANTS: dict[str, dict[str, Any]] = {
    "cat_cent": {},
    "cat_cw": {"attack.loss": "margin"},
    "at": {"method.name": "at", "mask_net.name": "OnesMask"},
    "standard": {"method.name": "standard", "mask_net.name": "OnesMask"},
}


def get_config() -> ConfigDict:
    """Every field with its default; the conventions of CIFAR (facts differ on MNIST)."""
    config = ConfigDict()
    config.seed = 0  # Of initialisation, batches, augmentation, noise and the validation split.
    config.variant = ""  # Set by the config file; recorded with every result.
    config.conventions = "released"  # "released": as the authors' code does; "paper": as its text.

    # Data. Sizes in examples.
    config.dataset = "digits"  # digits, mnist, cifar10, cifar100, synthetic.
    config.data_dir = "~/tensorflow_datasets"  # Folder that `python -m cat_jax.data` prepares.
    config.num_validation = 0  # Held out of the training split; 0: train on all, best/ is last/.
    config.selection = "validation"  # What chooses best/: "validation", or "test" (optimistic).
    config.augment = "none"  # Or "crop_flip": reflect-pad 4, random crop, random flip (sec. 5.2).

    # Networks (sec. 5.1). mean and std, on the [0, 1] scale, are applied inside the classifier.
    config.classifier = ConfigDict({"name": "SmallCNN", "mean": (), "std": ()})
    config.mask_net = ConfigDict({"name": "SmallMask"})
    config.mask_net.sees = placeholder(str)  # "pair": g(x, delta) (Eq. 11); "sum": g(x + delta).

    # Method (Algorithm 1).
    config.method = method = ConfigDict()
    method.name = "cat"  # standard, at, cat.
    method.beta = 5.0  # Weight of the divergence in theta's loss (Eq. 13).
    method.beta1 = 0.05  # Weight of the cross-entropy in phi's loss (Eq. 14).
    method.kl_p = placeholder(str)  # P of both KL(P || Q): "calibrated" or "reference" (x, x').
    method.certain = placeholder(float)  # c in the weight c - p(y | x) of Eq. 8.
    method.train_mode_attack = placeholder(bool)  # Batch norm in training mode while attacking.
    method.train_mode_mask_loss = placeholder(bool)  # And in the classifier under phi's loss.
    method.closing_forward = placeholder(bool)  # One more forward on x after both updates.

    # Training attack (Eq. 9).
    config.attack = attack = ConfigDict()
    attack.loss = "cross_entropy"  # Or "margin": C&W's, "kl": TRADES'.
    attack.kappa = 50.0  # Of the margin loss, in logits.
    attack.epsilon = "8/255"  # Radius of the L-infinity ball.
    attack.step_size = "2/255"
    attack.num_steps = 10
    attack.start_radius = placeholder(str)  # Of the uniform start. "epsilon": the ball's; "0": x.
    attack.clip = placeholder(bool)  # Keep x' in [0, 1]; without, it is another threat model.
    attack.closing_forward = placeholder(bool)  # One more forward on what the attack found.

    # Optimisation (sec. 5.1 and 5.2). `batch_size` is global: over all devices.
    config.batch_size = 128
    config.num_epochs = 140
    config.num_steps = 0  # Stop after so many steps; 0: after num_epochs.
    config.optimizer = _optimizer()
    config.mask_optimizer = _optimizer()

    # The attack that chooses best/, on the validation split, and how often.
    config.validation = validation = ConfigDict()
    validation.every_epochs = 1
    validation.epsilon = "8/255"
    validation.step_size = "2/255"
    validation.num_steps = 10
    validation.random_start = True
    validation.clip = placeholder(bool)

    # The attacks of the tables (sec. 5.3), on the test split.
    config.evaluation = "paper"  # paper, quick (natural and PGD-20), none.
    config.test = test = ConfigDict()
    test.epsilon = "8/255"  # FGSM and PGD.
    test.step_size = "0.003"
    test.cw_epsilon = "0.031"
    test.cw_kappa = 50.0
    test.cw_random_start = placeholder(bool)
    test.unclipped = False  # Also PGD without [0, 1]: the published MNIST numbers.
    test.num_examples = 0  # The first so many; 0: all.
    test.batch_size = 250

    # Bookkeeping, in steps. A checkpoint is also written at every validation and at the end.
    config.log_every = 50
    config.save_every = 500
    config.keep_checkpoints = 2  # In last/; more than one, so that a damaged one costs little.

    config.by_convention = _conventions()
    return config


def apply_variant(
    config: ConfigDict, variant: str, variants: Mapping[str, Mapping[str, Any]]
) -> ConfigDict:
    """`config` with the overrides of `variant`, {"method.beta": 1.0, ...}.

    Raises:
      UsageError: for a variant that is not in `variants`; it names those that are.
    """
    if variant not in variants:
        available = ", ".join(variants)
        raise UsageError(f"Variant {variant!r} is unknown; available: {available}.")
    config.variant = variant
    config.update_from_flattened_dict(dict(variants[variant]))
    return config


def _optimizer() -> ConfigDict:
    """SGD of the CIFAR experiments; both networks have the same."""
    optimizer = ConfigDict()
    optimizer.name = "sgd"  # Or "adam".
    optimizer.learning_rate = 0.1
    optimizer.momentum = 0.9  # Of SGD.
    optimizer.weight_decay = 5e-4  # Coupled: added to the gradient, on all parameters.
    optimizer.drop_epochs = placeholder(tuple)  # First epochs of the lower rates, from 0.
    optimizer.drop_factor = 0.1
    return optimizer


def _conventions() -> ConfigDict:
    """What the two conventions set, by the path of the field."""
    return ConfigDict(
        {
            "paper": {
                "mask_net": {"sees": "pair"},
                "method": {
                    "kl_p": "calibrated",
                    "certain": 1.0,
                    "train_mode_attack": False,
                    "train_mode_mask_loss": False,
                    "closing_forward": False,
                },
                "attack": {"start_radius": "epsilon", "clip": True, "closing_forward": False},
                "optimizer": {"drop_epochs": (100, 120)},
                "mask_optimizer": {"drop_epochs": (100, 120)},
                "validation": {"clip": True},
                "test": {"cw_random_start": False},
            },
            "released": {
                "mask_net": {"sees": "sum"},
                "method": {
                    "kl_p": "reference",
                    "certain": 1.0000001,
                    "train_mode_attack": True,
                    "train_mode_mask_loss": True,
                    "closing_forward": True,
                },
                "attack": {"start_radius": "epsilon", "clip": True, "closing_forward": True},
                "optimizer": {"drop_epochs": (100, 120)},
                "mask_optimizer": {"drop_epochs": (100, 120)},
                "validation": {"clip": True},
                "test": {"cw_random_start": True},
            },
        }
    )


def drop_learning_rates(
    config: ConfigDict, *, paper: tuple[int, ...], released: tuple[int, ...]
) -> None:
    """Sets the epochs of both networks' learning-rate drops, for each convention."""
    for name, epochs in (("paper", paper), ("released", released)):
        config.by_convention[name].optimizer.drop_epochs = epochs
        config.by_convention[name].mask_optimizer.drop_epochs = epochs
