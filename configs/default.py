"""The complete schema: every field, its unit, and its place in the paper or the published code.

A config file starts from `get_config()`, changes fields, and applies one of its variants:
`--config=configs/digits.py:standard`. Every field is a flag: `--config.method.beta1=0.1`.

Radii and step sizes are text on the [0, 1] pixel scale, "8/255" or "0.0314"; "epsilon/20" is a
part of the same section's epsilon; a section's epsilon may be a part of threat.epsilon,
or a multiple: "epsilon/0.5". A placeholder field follows the field that its comment names,
or else `conventions`. `cat_jax/experiment/fields.py` says what each field accepts and decides.
"""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from cat_jax.errors import UsageError

# Because a method without a mask network has M = 1.
_WITHOUT_MASK = {"mask_net.name": "OnesMask"}
# TRADES, MART, FAT and logit pairing as published, under both conventions: the attack starts from
# Gaussian noise, runs batch norm in inference mode and stays in [0, 1].
_PUBLISHED_BASELINE = _WITHOUT_MASK | {
    "attack.batch_norm": "inference",
    "attack.start": "gaussian",
    "attack.clip": True,
}
_AWP = {"awp.gamma": 0.005, "awp.warmup_epochs": 10}
# The variants of every config file, which adds its own hyper-parameters.
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
    # One step of 1.25 epsilon from a random start (Wong et al. 2020); not in the paper.
    "fast": VARIANTS["at"] | {"attack.num_steps": 1, "attack.step_size": "epsilon/0.8"},
    # One step of epsilon from x, with GradAlign (Andriushchenko & Flammarion 2020); not in the
    # paper. Their lambda is that of 8/255 on CIFAR-10; it grows with the radius, to 2 at 16/255.
    "grad_align": VARIANTS["at"]
    | {"attack.num_steps": 1, "attack.step_size": "epsilon", "attack.start_radius": "0"}
    | {"method.grad_align": 0.2},
    # One step of epsilon from noise of 2 epsilon, not projected (de Jorge et al. 2022); not in the
    # paper. The ball of 4 epsilon contains every such image. Their code also clips x and its noise
    # to [0, 1] before the step.
    "n_fgsm": VARIANTS["at"]
    | {"attack.num_steps": 1, "attack.epsilon": "epsilon/0.25"}
    | {"attack.step_size": "epsilon/4", "attack.start_radius": "epsilon/2"},
}


def variants(*tables: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns `VARIANTS` with the overrides of each table added to the variants that it names."""
    merged = {name: dict(overrides) for name, overrides in VARIANTS.items()}
    for table in tables:
        for name, overrides in table.items():
            merged[name] |= overrides
    return merged


def get_config() -> ConfigDict:
    """Returns every field with its default, locked, so that a misspelt field is an error."""
    config = ConfigDict()
    # Seeds initialisation, batch order, augmentation, noise and the validation split.
    config.seed = 0
    config.variant = ""  # The config file sets it, and every result records it.
    # Where the paper and the published code differ, "released" follows the code, "paper" the text.
    # "warmup" is "released" with a radius that grows from 0 over the first epochs.
    # `recipe` chooses among their settings for "cifar", "wide_resnet" and "mnist".
    config.conventions = "released"
    config.recipe = "cifar"

    # Threat model: "linf", "l2" or "l1". Training attack, validation and tests use it unless their
    # own norm or epsilon is set.
    config.threat = ConfigDict({"norm": "linf", "epsilon": "8/255"})

    # Your modules that register networks, methods, attacks or data sets: --plugin=MODULE.
    config.plugins = ()

    _set_data(config)
    _set_networks(config)
    config.method = _method()
    config.attack = _attack()
    # Adversarial weight perturbation: each kernel moves by gamma times its norm. 0: none.
    config.awp = ConfigDict({"gamma": 0.0, "warmup_epochs": 0})

    _set_optimisation(config)
    config.optimizer = _optimizer()
    config.mask_optimizer = _optimizer()
    config.validation = _validation()

    # Attacks on the test split (sec. 5.1): paper, standard (AutoAttack), rand, quick, curve, none,
    # names of attacks, or several of these: "paper,standard", "natural,square".
    config.evaluation = "paper"
    config.test = _test()

    # Logs and checkpoints, in steps. Validations and the end of training write checkpoints too.
    config.log_every = 50
    config.save_every = 500
    config.save_minutes = 15.0  # Also saves after this many minutes; 0: only by steps.
    config.keep_checkpoints = 2  # Checkpoints in last/; two, so that a damaged one costs little.
    config.tracker = "none"  # Metrics go also to Weights & Biases, "wandb", or to "mlflow".
    # Interval, in steps, at which a step is computed twice; other bits stop the run. 0: never.
    config.recheck_every = 0
    # A process that is stuck in a step for this many minutes ends with status 75, later if steps
    # are slow; other work may take 12 times as long. 0: never.
    config.watchdog_minutes = 10.0
    config.lock()
    return config


def _set_data(config: ConfigDict) -> None:
    """Sets the data. Sizes are numbers of examples."""
    # digits, mnist, cifar10, cifar100, tiny_imagenet, synthetic; own: your images; tfds:NAME: what
    # tensorflow_datasets has prepared, such as tfds:svhn_cropped.
    config.dataset = "digits"
    # Folder of prepared data sets; "" is $CAT_JAX_DATA, or else ~/tensorflow_datasets. With own, a
    # folder of images or an .npz file.
    config.data_dir = ""
    # Held out of the training split. With 0, best/ equals last/, unless the test split chooses it.
    config.num_validation = 0
    config.selection = "validation"  # Split that chooses best/, or "test" (optimistic).
    config.augment = "none"  # Or "crop_flip": reflect-pad 4, random crop, random flip (sec. 5.1),
    # or "crop_flip_zero": the same with zero padding, as in TRADES, MART and FAT.
    config.erasing = 0.0  # Probability that a rectangle of an image becomes 0 (Zhong et al. 2020).
    config.cutmix = 0.0  # Probability that an image gets a rectangle of another, and of its label.

    # Generated or pseudo-labelled images beside the training split: an .npz file with `image`,
    # uint8 [N, H, W, C], and `label`. An epoch has as many images as the training split.
    config.extra_data = ConfigDict({"path": "", "share": 0.7})  # Share of each batch.
    config.extra_data.fingerprint = ""  # Of the file's content; the command sets it.


def _set_networks(config: ConfigDict) -> None:
    """Sets the networks (sec. 5.1), and how a step computes them."""
    # The classifier applies mean and std, which are on the [0, 1] scale.
    config.classifier = ConfigDict({"name": "SmallCNN", "mean": (), "std": ()})
    config.classifier.depth = 34  # WideResNet only: 6n + 4.
    config.classifier.widen_factor = 10  # WideResNet only.
    config.classifier.activation = "relu"  # Or "silu", "gelu".
    # PreActResNet18 only. Start of the shortcuts that change the shape: "activated", relu(bn1(x)),
    # or the "input" x; and the norm before pooling, which Wong et al. 2020 leave out.
    config.classifier.shortcut = "activated"
    config.classifier.last_norm = True
    # WideResNet only: "linear", or "cosine" of normalised features and weights (Pang et al. 2020).
    config.classifier.head = "linear"
    config.classifier.normalize = True  # False ignores mean and std.
    config.mask_net = ConfigDict({"name": "SmallMask"})
    config.mask_net.sees = placeholder(str)  # "pair": g(x, delta) (Eq. 11); "sum": g(x + delta).
    config.parallel = "pmap"  # Or "shard_map", the newer API for the same step.
    config.sync_batch_norm = True  # Batch statistics over all devices; False: of each device.
    # "bfloat16" computes the inside of the networks in training steps. Weights, statistics, losses,
    # images, validations and tests stay float32.
    config.precision = "float32"
    config.remat = False  # Recompute each block in backward passes: less memory, one more forward.
    config.average = _average()
    # Weights that the classifier begins with: folder of a run (its best/), or a file. "": random.
    config.init_from = ""
    config.init_weights = ""  # Their fingerprint, which the command sets.


def _average() -> ConfigDict:
    """Returns the average of the classifier's weights over the steps, which is evaluated too."""
    average = ConfigDict()
    average.kind = "none"  # "moving" (exponential), or "equal": of the ends of epochs (SWA).
    average.decay = 0.995  # Moving only.
    average.warmup = False  # Moving only: t updates after the start, at most (1 + t) / (10 + t).
    # Running statistics: "averaged" like the weights, or "recomputed" with them, over an epoch of
    # training images before each validation and checkpoint.
    average.batch_norm = "averaged"
    average.start_epochs = 0  # Epochs before the average begins; until then it is the classifier.
    return average


def _method() -> ConfigDict:
    """Returns the method (Algorithm 1, and the paper's appendix for the others)."""
    method = ConfigDict()
    method.name = "cat"  # standard, at, trades, mart, fat, alp, mma, cat.
    method.beta = 5.0  # Weight of the divergence in theta's loss (Eq. 13), in TRADES and in FAT.
    method.beta1 = 0.05  # Weight of the cross-entropy in phi's loss (Eq. 14).
    method.weighted = True  # Weight the natural cross-entropy by Eq. 8; ablation A1: False.
    method.kl_p = placeholder(str)  # P of both KL(P || Q): "calibrated" or "reference" (x, x').
    method.certain = placeholder(float)  # c in the weight c - p(y | x) of Eq. 8.
    method.mask_loss_batch_norm = placeholder(str)  # Mode of the classifier in phi's loss.
    method.closing_forward = placeholder(bool)  # One more forward on x after both updates.
    method.weight = 5.0  # lambda of MART and of logit pairing.
    method.pairing = "norm"  # Pairing of logits: "norm" (the paper's appendix) or "mean_square".
    method.natural_weight = 0.0  # Weights of the two cross-entropies of logit pairing.
    method.adversarial_weight = 1.0
    # lambda of GradAlign, a penalty on input gradients that turn within the ball.
    method.grad_align = 0.0
    method.label_smoothing = 0.0  # Probability spread over all classes in theta's loss.
    return method


def _attack() -> ConfigDict:
    """Returns the training attack (Eq. 9)."""
    attack = ConfigDict()
    attack.loss = "cross_entropy"  # Or "margin" (C&W), "kl" (TRADES).
    attack.kappa = 50.0  # Bound of the margin loss, in logits.
    attack.norm = placeholder(str)  # Follows threat.norm.
    attack.epsilon = placeholder(str)  # Follows threat.epsilon.
    attack.step_size = "2/255"
    # More balls, such as ("l2:0.5", "l1:12"): train in the union of all. Their steps are the same
    # part of their radius. combine: "worst" of the balls (MSD), or "average": one drawn for each x.
    attack.union = ()
    attack.combine = "worst"
    attack.num_steps = 10
    # epsilon and step_size grow in proportion over this many epochs, such as 0.5.
    attack.warmup_epochs = placeholder(float)
    attack.start = "uniform"  # Or "gaussian" with standard deviation start_std.
    attack.start_radius = placeholder(str)  # Of the uniform start: "epsilon" is the ball, "0" is x.
    attack.start_std = "0.001"
    attack.clip = placeholder(bool)  # Keep x' in [0, 1]; False is another threat model.
    attack.batch_norm = placeholder(str)  # Mode of the attacked classifier.
    attack.closing_forward = placeholder(bool)  # One more forward on the attack's images.
    attack.tau_epochs = (30, 50, 70)  # First epochs, counted from 0, of FAT's tau = 1, 2, 3.
    return attack


def _set_optimisation(config: ConfigDict) -> None:
    """Sets the optimisation (sec. 5.1 and the appendix). `batch_size` is over all devices."""
    config.batch_size = 128
    config.num_epochs = 140
    config.num_steps = 0  # Length in steps; 0: num_epochs decides.
    config.steps_per_dispatch = 1  # Steps in one call of the device; more help if steps are short.
    config.num_parts = 1  # Parts of a device's batch over which gradients accumulate.
    config.non_finite = "stop"  # At a loss or update that is not finite; or "skip" the step.


def _optimizer() -> ConfigDict:
    """Returns SGD of the CIFAR experiments, for one network."""
    optimizer = ConfigDict()
    optimizer.name = "sgd"  # Or "adam".
    optimizer.learning_rate = 0.1
    optimizer.momentum = 0.9  # SGD only.
    optimizer.nesterov = False  # SGD only: Nesterov's momentum.
    optimizer.max_norm = 0.0  # The gradient is scaled down to this L2 norm; 0: never.
    optimizer.weight_decay = 5e-4  # Coupled: added to the gradient before momentum.
    optimizer.decay = "all"  # Or "kernels", without biases and normalisation.
    optimizer.schedule = "drops"  # Or "cosine" to 0, "cyclic" with its peak at 2/5 of num_epochs.
    optimizer.drop_epochs = placeholder(tuple)  # First epochs of the lower rates, counted from 0.
    optimizer.drop_factors = (0.1,)  # One factor for all drops, or one for each.
    optimizer.warmup_epochs = 0.0  # The rate grows in proportion; a cosine begins after it.
    optimizer.per = "epoch"  # The rate changes at each epoch, or at each "iteration".
    return optimizer


def _validation() -> ConfigDict:
    """Returns the validation: natural accuracy and accuracy under an attack, which choose best/."""
    validation = ConfigDict()
    validation.chosen_by = "sum"  # Or "robust" accuracy only: early stopping of Rice et al.
    validation.every_epochs = 1.0  # Or a part of an epoch, such as 0.5.
    validation.norm = placeholder(str)  # Follows threat.norm.
    validation.epsilon = placeholder(str)  # Follows threat.epsilon.
    validation.step_size = "2/255"
    validation.num_steps = 10
    validation.random_start = True
    validation.clip = placeholder(bool)
    return validation


def _test() -> ConfigDict:
    """Returns the attacks of the tables (sec. 5.1), on the test split."""
    test = ConfigDict()
    test.norm = placeholder(str)  # Follows threat.norm.
    test.epsilon = placeholder(str)  # Follows threat.epsilon.
    test.step_size = "0.003"
    test.cw_epsilon = "epsilon"  # Radius of C&W.
    test.cw_kappa = 50.0
    test.cw_random_start = placeholder(bool)
    test.unclipped = False  # Add PGD without clipping to [0, 1], as in the published MNIST numbers.
    test.num_restarts = 0  # Add PGD-40 from this number of random starts; 0: none.
    test.num_queries = 5000  # Queries of Square for each image (sec. 5.1).
    test.num_examples = 0  # Size of a random subset, balanced over the classes; 0: all images.
    test.subset_seed = 0  # Seed of the subset, separate from config.seed so that runs share it.
    test.num_checked = 64  # Images for the checks of false robustness; 0: none.
    test.search_precision = "float32"  # Or "tensorfloat32", "bfloat16"; float32 judges the images.
    test.save_adversarial = "none"  # Or "float32"; "uint8" rounds to 8 bits and evaluates those.
    test.batch_size = 250
    return test


def apply_variant(
    config: ConfigDict, variant: str, variants: Mapping[str, Mapping[str, Any]]
) -> ConfigDict:
    """Returns `config` with the overrides of `variant`, such as {"method.beta": 1.0}.

    Raises:
      UsageError: if `variant` is not in `variants`.
    """
    if variant not in variants:
        available = ", ".join(variants)
        raise UsageError(f"Variant {variant!r} is unknown; available: {available}.")
    config.variant = variant
    config.update_from_flattened_dict(dict(variants[variant]))
    return config
