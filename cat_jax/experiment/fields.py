"""Each field of the config: accepted values, effects, and whether a resumed run may change it.

`configs/default.py` explains each field and sets its default. The program reads the table below:
`settings.resolve`, the fingerprints, the refusal of a workdir with another config and the identity
of an evaluation. No other module lists fields.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cat_jax.experiment.conventions import CONVENTIONS, RECIPES
from cat_jax.experiment.limits import (
    ABOVE_0,
    EPOCHS,
    NAME,
    NAMES,
    NONE_OR_SEVERAL,
    PROBABILITY,
    RADIUS,
    SHARE,
    START,
    SWITCH,
    UNION,
    Limit,
    numbers,
    one_of,
)
from cat_jax.experiment.limits import at_least as least


class Affects(enum.Flag):
    """What a field decides, in a config in which every field is set.

    TRAINING: the weights, and the choice of best/. EVALUATION: the accuracy of given weights under
    an attack. NOTHING: neither, as with locations of files, the split of a step over devices, the
    list of attacks, and values that are only defaults of other fields.
    """

    NOTHING = 0
    TRAINING = enum.auto()
    EVALUATION = enum.auto()


NOTHING, TRAINING, EVALUATION = Affects.NOTHING, Affects.TRAINING, Affects.EVALUATION
BOTH = TRAINING | EVALUATION


class Field(NamedTuple):
    """One field of the config.

    Attributes:
      limit: accepted values.
      affects: what the field decides.
      longer: for a field that sets the length of a run: config -> may a resumed run change it?
      derived: whether only config files may set it.
    """

    limit: Limit
    affects: Affects
    longer: Callable[[Mapping[str, Any]], bool] | None = None
    derived: bool = False

    def may_change(self, values: Mapping[str, Any]) -> bool:
        """Whether a resumed run may have another value, given the fields of its config."""
        return self.longer(values) if self.longer else not self.affects & TRAINING


def _rates_do_not_stretch(values: Mapping[str, Any]) -> bool:
    """Whether the learning rates of the steps that are done do not depend on num_epochs."""
    schedules = {values[f"{name}.schedule"] for name in ("optimizer", "mask_optimizer")}
    return schedules == {"drops"}


NORM = one_of("linf", "l2", "l1")
BATCH_NORM = one_of("inference", "training")

FIELDS: dict[str, Field] = {
    "seed": Field(least(0), BOTH),
    "variant": Field(NAME, TRAINING, derived=True),
    "conventions": Field(one_of(*CONVENTIONS), TRAINING),
    "recipe": Field(one_of(*RECIPES), NOTHING),
    "threat.norm": Field(NORM, NOTHING),
    "threat.epsilon": Field(RADIUS, NOTHING),
    # Data.
    "dataset": Field(NAME, BOTH),
    "plugins": Field(NAMES, NOTHING),  # Because registered records have names.
    "data_dir": Field(NAME, NOTHING),  # Because the data have a fingerprint.
    "num_validation": Field(least(0), TRAINING),
    "selection": Field(one_of("validation", "test"), TRAINING),
    "erasing": Field(PROBABILITY, TRAINING),
    "cutmix": Field(PROBABILITY, TRAINING),
    "augment": Field(one_of("none", "crop_flip", "crop_flip_zero"), TRAINING),
    "extra_data.path": Field(NAME, NOTHING),  # Because the images have a fingerprint.
    "extra_data.share": Field(SHARE, TRAINING),
    "extra_data.fingerprint": Field(NAME, TRAINING, derived=True),
    # Networks.
    "classifier.name": Field(NAME, BOTH),
    "classifier.mean": Field(numbers(), BOTH),
    "classifier.std": Field(numbers(above=0), BOTH),
    "classifier.depth": Field(least(1), BOTH),
    "classifier.widen_factor": Field(least(1), BOTH),
    "classifier.activation": Field(one_of("relu", "silu", "gelu"), BOTH),
    "classifier.shortcut": Field(one_of("activated", "input"), BOTH),
    "classifier.last_norm": Field(SWITCH, BOTH),
    "classifier.head": Field(one_of("linear", "cosine"), BOTH),
    "classifier.normalize": Field(SWITCH, BOTH),
    "mask_net.name": Field(NAME, TRAINING),
    "mask_net.sees": Field(one_of("sum", "pair"), TRAINING),
    "parallel": Field(one_of("pmap", "shard_map"), NOTHING),
    "sync_batch_norm": Field(SWITCH, TRAINING),
    "precision": Field(one_of("float32", "bfloat16"), TRAINING),
    "remat": Field(SWITCH, NOTHING),
    "init_from": Field(NAME, NOTHING),  # Because the weights have a fingerprint.
    "init_weights": Field(NAME, TRAINING, derived=True),
    "average.kind": Field(one_of("none", "moving", "equal"), TRAINING),
    "average.decay": Field(least(0, below=1), TRAINING),
    "average.warmup": Field(SWITCH, TRAINING),
    "average.batch_norm": Field(one_of("averaged", "recomputed"), TRAINING),
    "average.start_epochs": Field(least(0), TRAINING),
    # Method.
    "method.name": Field(NAME, TRAINING),
    "method.beta": Field(least(0), TRAINING),
    "method.beta1": Field(least(0), TRAINING),
    "method.weighted": Field(SWITCH, TRAINING),
    "method.kl_p": Field(one_of("calibrated", "reference"), TRAINING),
    "method.certain": Field(least(1), TRAINING),  # Because the weight c - p must not be negative.
    "method.mask_loss_batch_norm": Field(BATCH_NORM, TRAINING),
    "method.closing_forward": Field(SWITCH, TRAINING),
    "method.weight": Field(least(0), TRAINING),
    "method.pairing": Field(one_of("norm", "mean_square"), TRAINING),
    "method.natural_weight": Field(least(0), TRAINING),
    "method.adversarial_weight": Field(least(0), TRAINING),
    "method.grad_align": Field(least(0), TRAINING),
    "method.label_smoothing": Field(least(0, below=1), TRAINING),
    # Training attack.
    "attack.loss": Field(one_of("cross_entropy", "margin", "kl"), TRAINING),
    "attack.kappa": Field(least(0), TRAINING),
    "attack.norm": Field(NORM, TRAINING),
    "attack.epsilon": Field(RADIUS, TRAINING),
    "attack.step_size": Field(RADIUS, TRAINING),
    "attack.union": Field(UNION, TRAINING),
    "attack.combine": Field(one_of("worst", "average"), TRAINING),
    "attack.num_steps": Field(least(1), TRAINING),
    "attack.warmup_epochs": Field(least(0), TRAINING),
    "attack.start": Field(one_of("uniform", "gaussian"), TRAINING),
    "attack.start_radius": Field(START, TRAINING),
    "attack.start_std": Field(START, TRAINING),
    "attack.clip": Field(SWITCH, TRAINING),
    "attack.batch_norm": Field(BATCH_NORM, TRAINING),
    "attack.closing_forward": Field(SWITCH, TRAINING),
    "attack.tau_epochs": Field(EPOCHS, TRAINING),
    "awp.gamma": Field(least(0), TRAINING),
    "awp.warmup_epochs": Field(least(0), TRAINING),
    # Optimisation.
    "batch_size": Field(least(1), TRAINING),
    "num_epochs": Field(least(1), TRAINING, longer=_rates_do_not_stretch),
    "num_steps": Field(least(0), TRAINING, longer=lambda values: True),
    "steps_per_dispatch": Field(least(1), NOTHING),
    "num_parts": Field(least(1), TRAINING),
    "non_finite": Field(one_of("stop", "skip"), TRAINING),
    # What chooses best/.
    "validation.chosen_by": Field(one_of("sum", "robust"), TRAINING),
    "validation.every_epochs": Field(ABOVE_0, TRAINING),
    "validation.norm": Field(NORM, TRAINING),
    "validation.epsilon": Field(RADIUS, TRAINING),
    "validation.step_size": Field(RADIUS, TRAINING),
    "validation.num_steps": Field(least(1), TRAINING),
    "validation.random_start": Field(SWITCH, TRAINING),
    "validation.clip": Field(SWITCH, TRAINING),
    # Evaluation. Fields that add attacks do not change the accuracy under any of the others.
    "evaluation": Field(NAME, NOTHING),
    "test.norm": Field(NORM, EVALUATION),
    "test.epsilon": Field(RADIUS, EVALUATION),
    "test.step_size": Field(RADIUS, EVALUATION),
    "test.cw_epsilon": Field(RADIUS, EVALUATION),
    "test.cw_kappa": Field(least(0), EVALUATION),
    "test.cw_random_start": Field(SWITCH, EVALUATION),
    "test.unclipped": Field(SWITCH, NOTHING),
    "test.num_restarts": Field(least(0), NOTHING),
    "test.num_queries": Field(least(1), EVALUATION),
    "test.num_examples": Field(least(0), EVALUATION),
    "test.subset_seed": Field(least(0), EVALUATION),
    "test.num_checked": Field(NONE_OR_SEVERAL, NOTHING),
    "test.search_precision": Field(one_of("float32", "tensorfloat32", "bfloat16"), EVALUATION),
    "test.save_adversarial": Field(one_of("none", "float32", "uint8"), NOTHING),
    "test.batch_size": Field(least(1), NOTHING),
    # Bookkeeping.
    "log_every": Field(least(1), NOTHING),
    "save_every": Field(least(1), NOTHING),
    "save_minutes": Field(least(0), NOTHING),
    "keep_checkpoints": Field(least(1), NOTHING),
    "recheck_every": Field(least(0), NOTHING),
    "tracker": Field(one_of("none", "wandb", "mlflow"), NOTHING),
    "watchdog_minutes": Field(least(0), NOTHING),
}
_OPTIMIZER = {
    "name": one_of("sgd", "adam"),
    "learning_rate": least(0),
    "momentum": least(0, below=1),
    "nesterov": SWITCH,
    "max_norm": least(0),
    "weight_decay": least(0),
    "decay": one_of("all", "kernels"),
    "schedule": one_of("drops", "cosine", "cyclic"),
    "drop_epochs": EPOCHS,
    "drop_factors": numbers(above=0),
    "warmup_epochs": least(0),
    "per": one_of("epoch", "iteration"),
}
for _name in ("optimizer", "mask_optimizer"):
    FIELDS |= {f"{_name}.{name}": Field(limit, TRAINING) for name, limit in _OPTIMIZER.items()}
