"""The conditions of a result that the arguments of its attack set, as plain JSON values."""

import dataclasses
import functools
import hashlib
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from cat_jax import objectives
from cat_jax.attacks.apgd import apgd, apgd_t
from cat_jax.attacks.apgd_losses import adversarial_logit_ratio
from cat_jax.attacks.arguments import check_radius
from cat_jax.attacks.ddn import ddn
from cat_jax.attacks.fmn import fmn
from cat_jax.attacks.pgd import cw_linf, fgsm, friendly_pgd, pgd
from cat_jax.attacks.square import square, square_with_queries
from cat_jax.errors import UsageError
from cat_jax.types import Array, LogitsFn

AttackFn = Callable[..., Any]
LOSSES: dict[Any, str] = {
    objectives.adversarial_cross_entropy: "cross_entropy",
    objectives.adversarial_kl: "kl",
    objectives.AdversarialMargin: "margin",
    adversarial_logit_ratio: "logit_ratio",
}
# Attacks that minimise the distance, and their norms where no argument has it. Their epsilon is the
# largest distance that counts, so that one run has the results at all smaller radii.
MINIMUM_NORM: dict[AttackFn, str] = {fmn: "linf", ddn: "l2"}


def square_counted(
    logits_fn: LogitsFn, images: Array, labels: Array, key: Array, **hyper: Any
) -> tuple[Array, Array]:
    """`square` with the number of queries of each image; the arguments are those of `square`."""
    result = square_with_queries(logits_fn, images, labels, key, **hyper)
    return result.adversarial, result.queries


# The arguments of attacks that run another attack. Tests compare them with the attacks.
SPECIAL_CASES: dict[AttackFn, Callable[..., AttackFn]] = {
    fgsm: lambda *, epsilon, **others: functools.partial(
        pgd, epsilon=epsilon, step_size=epsilon, num_steps=1, random_start=False, **others
    ),
    cw_linf: lambda *, kappa=50.0, **others: functools.partial(
        pgd, loss=objectives.AdversarialMargin(kappa), **others
    ),
    friendly_pgd: lambda *, tau=0, **others: functools.partial(pgd, tau=tau, **others),
    apgd_t: lambda *, num_targets=9, **others: functools.partial(
        cast(Any, apgd), loss="targeted_logit_ratio", num_targets=num_targets, **others
    ),
    square_counted: lambda **others: functools.partial(square, **others),
}


def describe(attack: AttackFn) -> dict[str, Any]:
    """The arguments of an attack as plain JSON values, with the defaults of those that are not set.

    "epsilon", "norm" and "clipped" are always among them. The norm of a union over several norms
    is "union", and its epsilon is the largest one; "attacks" has those of each attack.

    Raises:
      UsageError: if the radius is missing, is not one number, or is outside its range.
    """
    function, arguments = unwrap(attack)
    if expand := SPECIAL_CASES.get(function):
        return describe(expand(**arguments))
    values = _defaults(function) | arguments
    if "random_start" in values:  # Because the default depends on the start.
        values["random_start"] = values["random_start"] is not False and values.get("start") is None
    parts = [describe(part) for part in parts_of(values)]
    epsilon = values.get("epsilon", max((part["epsilon"] for part in parts), default=None))
    if not isinstance(epsilon, (int, float)) or isinstance(epsilon, bool):
        name = getattr(function, "__name__", type(function).__name__)
        raise UsageError(
            f"The attack {name} has epsilon={epsilon}; expected one number: give the attack an "
            f"argument epsilon, and name it as functools.partial({name}, epsilon=8 / 255)."
        )
    norm = MINIMUM_NORM.get(function, "linf")
    conditions: dict[str, Any] = {"norm": norm, "clipped": True, "restarts": 1}
    if "attack" in values:
        conditions |= parts[0]
    elif parts:
        norms = {part["norm"] for part in parts}
        conditions["norm"] = norms.pop() if len(norms) == 1 else "union"
        conditions |= {"attacks": parts, "clipped": all(part["clipped"] for part in parts)}
    inner = conditions["restarts"]
    conditions |= _plain(values) | {"epsilon": float(epsilon)}
    if "attack" in values:
        conditions["restarts"] *= inner
    check_radius(conditions["norm"], epsilon=conditions["epsilon"])
    return conditions


def unwrap(attack: AttackFn) -> tuple[Any, dict[str, Any]]:
    """The function of a partial and its keyword arguments; a partial of a partial is flat."""
    if isinstance(attack, functools.partial):
        return attack.func, dict(attack.keywords)
    return attack, {}


def _defaults(function: AttackFn) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is not parameter.empty
    }


def parts_of(values: Mapping[str, Any]) -> tuple[AttackFn, ...]:
    """The attacks that an attack of `compose` runs."""
    return (values["attack"],) if "attack" in values else tuple(values.get("attacks", ()))


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by their names in results, without those that are not set."""
    plain: dict[str, Any] = {}
    for name, value in values.items():
        if name in ("attack", "attacks", "epsilon") or (value is None and name != "pixel_range"):
            continue
        if name == "pixel_range":
            plain["clipped"] = value is not None
            if value not in (None, (0.0, 1.0)):
                plain[name] = list(value)
        elif name == "num_restarts":
            plain["restarts"] = value
        elif name == "loss":
            plain |= _describe_loss(value)
        else:
            plain[name] = _json(value)
    return plain


def _describe_loss(loss: Any) -> dict[str, Any]:
    """The name of a loss, and the fields of one that is a dataclass, such as kappa."""
    if isinstance(loss, str):
        return {"loss": loss}
    is_instance = dataclasses.is_dataclass(loss) and not isinstance(loss, type)
    kind = type(loss) if is_instance else loss
    fields = dataclasses.asdict(loss) if is_instance else {}
    return {"loss": LOSSES.get(kind, _json(kind))} | {k: _json(v) for k, v in fields.items()}


def _json(value: Any) -> Any:
    """A value in the form of JSON: functions as their names, arrays as their SHA-256."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number.
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if isinstance(value, (tuple, list)):
        return [_json(item) for item in value]
    if callable(value):
        return f"{value.__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    array = np.ascontiguousarray(value)
    digest = hashlib.sha256(array.tobytes()).hexdigest()[:12]
    return f"{array.dtype}{list(array.shape)} {digest}"
