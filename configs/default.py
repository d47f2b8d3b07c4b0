"""The whole schema: every field, its unit, and where the paper or the published code speaks of it.

A config file starts from `get_config()`, changes fields, and applies one of its variants:
`--config=configs/digits.py:standard`. Any field can be overridden: `--config.method.beta1=0.1`.

Radii and step sizes are text on the [0, 1] pixel scale, "8/255" or "0.0314"; "epsilon/20" is a
part of the same section's epsilon. A field that is None follows another one, which its comment
names, or else `conventions`. What each field accepts, and what it decides, is in
`cat_jax/experiment/fields.py`.
"""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from cat_jax.errors import UsageError

# A method without a mask network has M = 1.
_WITHOUT_MASK = {"mask_net.name": "OnesMask"}
# How TRADES, MART, FAT and logit pairing were published: batch norm in inference mode while
# attacking, from a Gaussian start, always within [0, 1], under both conventions.
_PUBLISHED_BASELINE = _WITHOUT_MASK | {
    "attack.batch_norm": "inference",
    "attack.start": "gaussian",
    "attack.clip": True,
}
_AWP = {"awp.gamma": 0.005, "awp.warmup_epochs": 10}
# What every config file offers; each adds hyper-parameters of its own.
VARIANTS: dict[str, dict[str, Any]] = {
    "cat_cent": {},
    "cat_cw": {"attack.loss": "margin"},
    "cat_kl": {"attack.loss": "kl"},
    "a1": _WITHOUT_MASK | {"method.weighted": False},
    "a2": _WITHOUT_MASK,
    "at": _WITHOUT_MASK
    | {"method.name": "at", "attack.batch_norm": "training", "validation.chosen_by": "robust"},
    "trades": _PUBLISHED_BASELINE | {"method.name": "trades", "attack.loss": "kl"},
    "mart": _PUBLISHED_BASELINE | {"method.name": "mart"},
    "fat": _PUBLISHED_BASELINE | {"method.name": "fat", "attack.loss": "kl"},
    "alp": _PUBLISHED_BASELINE
    | {"method.name": "alp", "method.weight": 0.5, "method.pairing": "mean_square"}
    | {"method.natural_weight": 0.5, "method.adversarial_weight": 0.5},
    "mma": _PUBLISHED_BASELINE | {"method.name": "mma", "attack.start": "uniform"},
    "standard": _WITHOUT_MASK | {"method.name": "standard"},
}
VARIANTS |= {
    "at_awp": VARIANTS["at"] | {"awp.gamma": 0.01},
    "trades_awp": VARIANTS["trades"] | _AWP,
    "cat_awp": VARIANTS["cat_cent"] | _AWP,
    # Not in the paper: one step of 1.25 epsilon from a random start (Wong et al. 2020).
    "fast": VARIANTS["at"] | {"attack.num_steps": 1, "attack.step_size": "epsilon/0.8"},
}


def variants(*tables: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """`VARIANTS`, with the overrides of each table added to those of the same name."""
    merged = {name: dict(overrides) for name, overrides in VARIANTS.items()}
    for table in tables:
        for name, overrides in table.items():
            merged[name] |= overrides
    return merged


def get_config() -> ConfigDict:
    """Every field with its default, locked: a misspelt field is an error."""
    config = ConfigDict()
    config.seed = 0  # For initialisation, batches, augmentation, noise and the validation split.
    config.variant = ""  # Set by the config file; recorded with every result.
    # Where the paper and the published code differ, "released" follows the code, "paper" the text.
    # `recipe` is the part of them that is meant: "cifar", "wide_resnet" or "mnist".
    config.conventions = "released"
    config.recipe = "cifar"

    # Threat model: "linf", or "l2" for PGD and FGSM alone. Training attack, validation and tests
    # follow it, except where they have a norm or an epsilon of their own.
    config.threat = ConfigDict({"norm": "linf", "epsilon": "8/255"})

    # Your modules, which register networks, methods, attacks or data sets: --plugin=MODULE.
    config.plugins = ()

    # Data. Sizes in examples.
    config.dataset = "digits"  # digits, mnist, cifar10, cifar100, synthetic, own: your images.
    # Folder of prepared data sets; "": $CAT_JAX_DATA, or else ~/tensorflow_datasets. For own, a
    # folder of images or an .npz file.
    config.data_dir = ""
    config.num_validation = 0  # Held out of the training split; 0: train on all, best/ is last/.
    config.selection = "validation"  # What chooses best/: "validation", or "test" (optimistic).
    config.augment = "none"  # Or "crop_flip": reflect-pad 4, random crop, random flip (sec. 5.1).
    # Or "crop_flip_zero": the same with zeros around, as TRADES, MART and FAT have it.

    # Networks (sec. 5.1). mean and std, on the [0, 1] scale, are applied inside the classifier.
    config.classifier = ConfigDict({"name": "SmallCNN", "mean": (), "std": ()})
    config.classifier.depth = 34  # WideResNet only: 6n + 4.
    config.classifier.widen_factor = 10  # WideResNet only.
    config.classifier.normalize = True  # False: mean and std are not used.
    config.mask_net = ConfigDict({"name": "SmallMask"})
    config.mask_net.sees = placeholder(str)  # "pair": g(x, delta) (Eq. 11); "sum": g(x + delta).
    config.parallel = "pmap"  # Or "shard_map": the same step over all devices by the newer API.
    config.sync_batch_norm = True  # Batch statistics over all devices; False: each device its own.
    # "bfloat16": the inside of the networks in a training step; weights, statistics, losses and
    # images stay float32, and so do validations and tests.
    config.precision = "float32"
    config.remat = False  # Recompute each block in backward passes: less memory, one more forward.
    config.average_decay = 0.0  # Moving average of the classifier, evaluated too; 0: none.

    # Method (Algorithm 1, and the paper's appendix for the others).
    config.method = method = ConfigDict()
    method.name = "cat"  # standard, at, trades, mart, fat, alp, mma, cat.
    method.beta = 5.0  # Weight of the divergence in theta's loss (Eq. 13); TRADES', FAT's too.
    method.beta1 = 0.05  # Weight of the cross-entropy in phi's loss (Eq. 14).
    method.weighted = True  # Weigh the natural cross-entropy as Eq. 8 does; ablation A1: False.
    method.kl_p = placeholder(str)  # P of both KL(P || Q): "calibrated" or "reference" (x, x').
    method.certain = placeholder(float)  # c in the weight c - p(y | x) of Eq. 8.
    method.mask_loss_batch_norm = placeholder(str)  # Mode of the classifier under phi's loss.
    method.closing_forward = placeholder(bool)  # One more forward on x after both updates.
    method.weight = 5.0  # lambda of MART and of logit pairing.
    method.pairing = "norm"  # Pairing of logits: "norm" (the paper's appendix) or "mean_square".
    method.natural_weight = 0.0  # Weights of the two cross-entropies of logit pairing.
    method.adversarial_weight = 1.0

    # Training attack (Eq. 9).
    config.attack = attack = ConfigDict()
    attack.loss = "cross_entropy"  # Or "margin": C&W's, "kl": TRADES'.
    attack.kappa = 50.0  # Bound of the margin loss, in logits.
    attack.norm = placeholder(str)  # Follows threat.norm.
    attack.epsilon = placeholder(str)  # Follows threat.epsilon.
    attack.step_size = "2/255"
    attack.num_steps = 10
    attack.start = "uniform"  # Or "gaussian", for which start_std is the scale.
    attack.start_radius = placeholder(str)  # For the uniform start. "epsilon": the ball; "0": x.
    attack.start_std = "0.001"
    attack.clip = placeholder(bool)  # Keep x' in [0, 1]; without, it is another threat model.
    attack.batch_norm = placeholder(str)  # Mode of the attacked classifier.
    attack.closing_forward = placeholder(bool)  # One more forward on the attack's images.
    attack.tau_epochs = (30, 50, 70)  # First epochs, from 0, of FAT's tau = 1, 2, 3.

    # Adversarial weight perturbation: each kernel moves by gamma times its norm. 0: none.
    config.awp = ConfigDict({"gamma": 0.0, "warmup_epochs": 0})

    # Optimisation (sec. 5.1 and the appendix). `batch_size` is global: over all devices.
    config.batch_size = 128
    config.num_epochs = 140
    config.num_steps = 0  # Stop after so many steps; 0: after num_epochs.
    config.steps_per_dispatch = 1  # So many steps in one call of the device, for short steps.
    config.num_parts = 1  # Gradients are accumulated over so many parts of a device's batch.
    config.non_finite = "stop"  # At a loss or an update that is not finite; or "skip" that step.
    config.optimizer = _optimizer()
    config.mask_optimizer = _optimizer()

    # What chooses best/: accuracy on the validation split and under an attack, and how often.
    config.validation = validation = ConfigDict()
    validation.chosen_by = "sum"  # Or "robust" accuracy alone: early stopping of Rice et al.
    validation.every_epochs = 1
    validation.norm = placeholder(str)  # Follows threat.norm.
    validation.epsilon = placeholder(str)  # Follows threat.epsilon.
    validation.step_size = "2/255"
    validation.num_steps = 10
    validation.random_start = True
    validation.clip = placeholder(bool)

    # The attacks of the tables (sec. 5.1), on the test split.
    # paper, standard (AutoAttack), quick (natural and PGD-20), none; or attacks by their names in
    # results.jsonl; or several of these: "paper,standard", "natural,square".
    config.evaluation = "paper"
    config.test = test = ConfigDict()
    test.norm = placeholder(str)  # Follows threat.norm.
    test.epsilon = placeholder(str)  # Follows threat.epsilon.
    test.step_size = "0.003"
    test.cw_epsilon = "epsilon"  # Radius of C&W.
    test.cw_kappa = 50.0
    test.cw_random_start = placeholder(bool)
    test.unclipped = False  # Also PGD without [0, 1]: the published MNIST numbers.
    test.num_restarts = 0  # Also PGD-40 from so many random starts; 0: not.
    test.num_queries = 5000  # Queries of Square for each image (sec. 5.1).
    test.num_examples = 0  # A random subset of so many, balanced over the classes; 0: all.
    test.subset_seed = 0  # For that choice; not config.seed, so that runs share the subset.
    test.num_checked = 64  # Images on which the classifier is checked for false robustness; 0: not.
    test.save_adversarial = "none"  # "float32"; "uint8": rounded to 8 bits, and attacked so.
    test.batch_size = 250

    # Bookkeeping, in steps. A checkpoint is also written at every validation and at the end.
    config.log_every = 50
    config.save_every = 500
    config.keep_checkpoints = 2  # In last/; more than one, so that a damaged one costs little.
    config.lock()
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
    optimizer.momentum = 0.9  # SGD only.
    optimizer.weight_decay = 5e-4  # Coupled: added to the gradient before momentum.
    optimizer.decay = "all"  # Or "kernels": spares biases and what normalisation learns.
    optimizer.schedule = "drops"  # Or "cosine" to 0, "cyclic": up to 2/5 of num_epochs and down.
    optimizer.drop_epochs = placeholder(tuple)  # First epochs of the lower rates, from 0.
    optimizer.drop_factors = (0.1,)  # One for all drops, or one for each.
    optimizer.per = "epoch"  # The rate follows whole epochs, or at each "iteration" their fraction.
    return optimizer
