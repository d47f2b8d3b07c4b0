"""A config made definite: conventions filled in, every value checked, and its fingerprint."""

import fractions
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from cat_jax.errors import UsageError, check_choice

RADII = (
    "attack.epsilon",
    "attack.step_size",
    "attack.start_radius",
    "attack.start_std",
    "validation.epsilon",
    "validation.step_size",
    "test.epsilon",
    "test.step_size",
    "test.cw_epsilon",
)
POSITIVE = (
    *(
        "batch_size",
        "num_epochs",
        "num_parts",
        "steps_per_dispatch",
        "log_every",
        "save_every",
        "test.batch_size",
    ),
    *("attack.num_steps", "validation.num_steps", "validation.every_epochs"),
    *("test.num_queries", "classifier.depth", "classifier.widen_factor"),
)
NOT_NEGATIVE = (
    *("num_steps", "num_validation", "seed", "test.num_examples", "test.num_restarts"),
    *("test.subset_seed", "test.num_checked"),
    *("awp.gamma", "awp.warmup_epochs", "average_decay", "attack.kappa", "test.cw_kappa"),
    *("method.beta", "method.beta1", "method.weight"),
    *("method.natural_weight", "method.adversarial_weight"),
    *(
        f"{optimizer}.{field}"
        for optimizer in ("optimizer", "mask_optimizer")
        for field in ("learning_rate", "momentum", "weight_decay")
    ),
)
MOST = 2**31 - 1  # What an int32 holds; no sensible setting is larger.
CHOSEN_BY = ("sum", "robust")
SAVED = ("none", "float32", "uint8")
NON_FINITE = ("stop", "skip")
PARALLEL = ("pmap", "shard_map")


def resolve(config: ConfigDict) -> ConfigDict:
    """A copy in which every field is set and valid, so that it says all there is to say.

    Raises:
      UsageError: for a value that cannot be meant.
    """
    check_choice("config.conventions", config.conventions, config.by_convention)
    resolved = config.copy_and_resolve_references()
    resolved.unlock()
    tables = resolved.by_convention
    del resolved["by_convention"]
    for section, values in tables[config.conventions].items():
        for field, value in values.items():
            if resolved[section][field] is None:
                resolved[section][field] = value
    for field in ("step_size", "start_radius"):
        resolved.attack[field] = _in_epsilons(resolved.attack[field], resolved.attack.epsilon)
    for path in RADII:
        radius(path, _at(resolved, path))
    for path, value in _numbers(resolved):
        if not isinstance(value, (int, float)) or not abs(value) <= MOST:
            raise UsageError(f"config.{path} is {value!r}; expected a number, at most {MOST}.")
    for path in POSITIVE:
        if _at(resolved, path) < 1:
            raise UsageError(f"config.{path} is {_at(resolved, path)}; expected at least 1.")
    for path in NOT_NEGATIVE:
        if not _at(resolved, path) >= 0:
            raise UsageError(f"config.{path} is {_at(resolved, path)}; expected at least 0.")
    if not resolved.average_decay < 1:
        raise UsageError(
            f"config.average_decay is {resolved.average_decay}; expected less than 1, such as "
            "0.999, or 0 for no average."
        )
    resolved.lock()
    check_choice("config.parallel", resolved.parallel, PARALLEL)
    check_choice("config.selection", resolved.selection, ("validation", "test"))
    check_choice("config.validation.chosen_by", resolved.validation.chosen_by, CHOSEN_BY)
    check_choice("config.test.save_adversarial", resolved.test.save_adversarial, SAVED)
    check_choice("config.non_finite", resolved.non_finite, NON_FINITE)
    check_choice("config.mask_net.sees", resolved.mask_net.sees, ("sum", "pair"))
    return resolved


def _numbers(config: ConfigDict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The path and value of each number, and of all that a tuple holds in their place."""
    for field, value in config.items():
        if isinstance(value, ConfigDict):
            yield from _numbers(value, f"{prefix}{field}.")
        elif isinstance(value, (int, float, tuple)):
            every = value if isinstance(value, tuple) else (value,)
            yield from ((f"{prefix}{field}", number) for number in every)


def _in_epsilons(text: str, epsilon: str) -> str:
    """ "epsilon/20" as a number, for this epsilon; any other text as it is."""
    head, slash, divisor = text.partition("/")
    if head != "epsilon":
        return text
    radius("attack.epsilon", epsilon)
    try:
        return str(fractions.Fraction(epsilon) / fractions.Fraction(divisor)) if slash else epsilon
    except (ValueError, ZeroDivisionError):
        return text  # Refused with the other radii.


def radius(path: str, text: str) -> float:
    """The number that "8/255" or "0.0314" stands for.

    Raises:
      UsageError: if it is none, or outside [0, 1].
    """
    try:
        value = float(fractions.Fraction(text))
    except (ValueError, ZeroDivisionError, OverflowError):
        raise UsageError(
            f"config.{path} is {text!r}; expected a number such as 0.0314 or 8/255."
        ) from None
    if not 0.0 <= value <= 1.0:
        raise UsageError(
            f"config.{path} is {text}; expected [0, 1], a part of the pixel range: "
            f"for {text} of 255 grey levels write {text}/255."
        )
    return value


def refuse_other_labels(file: str, said: Mapping[str, Any], config: ConfigDict) -> None:
    """Raises UsageError if a file of weights says it is of another config than what is resolved.

    Its results would go by that config's name.
    """
    differences = []
    for path, there in said.items():
        here = _at(config, path)
        if path in RADII:
            there, here = radius(path, there), radius(path, here)
        if there != here:
            differences.append(f"{path} {there!r}, not {here!r}")
    if differences:
        raise UsageError(
            f"{file} is of {', '.join(differences)}; evaluate it by the config that it was "
            "trained with, or rename a file that is named wrongly."
        )


def fingerprint(config: ConfigDict) -> str:
    """Twelve hexadecimal digits of the config's SHA-256: equal for equal experiments.

    Where the data are is left out, since their own fingerprint says which they are, and what
    spreads a step over devices, since it does not change it.
    """
    left_out = ("data_dir", "parallel")
    fields = {name: value for name, value in as_dict(config).items() if name not in left_out}
    return hashlib.sha256(json.dumps(fields, sort_keys=True, allow_nan=False).encode()).hexdigest()[
        :12
    ]


def as_dict(config: ConfigDict) -> dict[str, Any]:
    """The config as plain JSON values: tuples become lists."""
    plain: dict[str, Any] = json.loads(config.to_json())
    return plain


def _at(config: ConfigDict, path: str) -> Any:
    for field in path.split("."):
        config = config[field]
    return config
