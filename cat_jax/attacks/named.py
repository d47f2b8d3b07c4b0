"""An attack as results name it, and the conditions that its own arguments set."""

import dataclasses
import functools
import hashlib
import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np

from cat_jax import objectives
from cat_jax.attacks.apgd import adversarial_logit_ratio, apgd, apgd_t
from cat_jax.attacks.arguments import check_radius
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


class NamedAttack(NamedTuple):
    """An attack with the name of its results.

    Attributes:
      name: such as "pgd20". A name alone identifies no number: `conditions` do.
      attack: (logits_fn, images, labels, keys) -> images, or images and the forward passes on
        each, int32 [B]; None for natural accuracy. Its radius is its argument `epsilon`:
        `functools.partial(attacks.pgd, epsilon=8 / 255, step_size=2 / 255, num_steps=20)`.
      after: the attack before it in a cascade. It attacks only the images that are still right
        after that one, and its flags are those of both.
      queries: forward passes on each image, where the attack does not count them.
      plugins: the module outside cat_jax that registered it, as `plugins_of` names it.
    """

    name: str
    attack: AttackFn | None
    after: "NamedAttack | None" = None
    queries: int = 1
    plugins: Mapping[str, str] = MappingProxyType({})

    @property
    def conditions(self) -> dict[str, Any]:
        """What decides the images, as plain JSON values, from the attack's own arguments.

        Of the attacks before it in a cascade, "after" has what differs from this one.

        Raises:
          UsageError: without a radius, or with one outside its range.
        """
        *earlier, own = (attack._arguments() for attack in self.chain())
        after = [_difference(arguments, own) for arguments in earlier]
        return own | ({"after": after} if after else {})

    @property
    def identity(self) -> Hashable:
        """Equal for attacks that are the same function with the same arguments."""
        return _identity(self.attack)

    def chain(self) -> "list[NamedAttack]":
        """The cascade up to this attack, in the order of the attacks."""
        return [*(self.after.chain() if self.after else ()), self]

    def along(self, epsilons: Iterable[float]) -> "list[NamedAttack]":
        """The attack at each radius, from the smallest on, each after the one before it.

        A ball holds all smaller ones, so that an image that is broken in one of them stays broken.
        """
        points: list[NamedAttack] = []
        for epsilon in sorted({float(epsilon) for epsilon in epsilons}):
            points.append(self.at(epsilon)._replace(after=points[-1] if points else None))
        return points

    def at(self, epsilon: Any) -> "NamedAttack":
        """The attack at another radius; its step size keeps its ratio to the radius.

        Args:
          epsilon: the radius, a number or a scalar that is traced.
        """
        if self.attack is None:
            raise UsageError(f"{self.name} is no attack and has no radius; expected an attack.")
        if not (own := self.conditions["epsilon"]):
            raise UsageError(
                f"{self.name} has radius 0; expected above 0: its step size keeps its ratio to it."
            )
        return self._replace(attack=_at(self.attack, epsilon, epsilon / own))

    def _arguments(self) -> dict[str, Any]:
        named = {"attack": self.name} | ({"plugins": {**self.plugins}} if self.plugins else {})
        return named | (describe(self.attack) if self.attack else {})


def _difference(earlier: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an earlier attack of a cascade that are not those of the last."""
    names = earlier if len(earlier) == 1 else own | earlier  # Natural accuracy has only its name.
    return {k: earlier.get(k) for k in names if k not in own or earlier.get(k) != own[k]}


def square_counted(
    logits_fn: LogitsFn, images: Array, labels: Array, key: Array, **hyper: Any
) -> tuple[Array, Array]:
    """`square`, with the number of queries that each image took; arguments as there."""
    result = square_with_queries(logits_fn, images, labels, key, **hyper)
    return result.adversarial, result.queries


# Attacks that run another attack with other arguments: those arguments. Tests hold them against
# what the attacks do.
SPECIAL_CASES: dict[AttackFn, Callable[..., AttackFn]] = {
    fgsm: lambda *, epsilon, **more: functools.partial(
        pgd, epsilon=epsilon, step_size=epsilon, num_steps=1, random_start=False, **more
    ),
    cw_linf: lambda *, kappa=50.0, **more: functools.partial(
        pgd, loss=objectives.AdversarialMargin(kappa), **more
    ),
    friendly_pgd: lambda *, tau=0, **more: functools.partial(pgd, tau=tau, **more),
    apgd_t: lambda *, num_targets=9, **more: functools.partial(
        cast(Any, apgd), loss="targeted_logit_ratio", num_targets=num_targets, **more
    ),
    square_counted: lambda **more: functools.partial(square, **more),
}


def describe(attack: AttackFn) -> dict[str, Any]:
    """The arguments of an attack and the defaults of the others, as plain JSON values.

    "epsilon", "norm" and "clipped" are always among them.

    Raises:
      UsageError: without one radius, or with one outside its range.
    """
    function, arguments = _unwrap(attack)
    if expand := SPECIAL_CASES.get(function):
        return describe(expand(**arguments))
    values = _defaults(function) | arguments
    if "random_start" in values:  # Unset, it depends on the start.
        values["random_start"] = values["random_start"] is not False and values.get("start") is None
    parts = [describe(part) for part in _parts(values)]
    epsilon = values.get("epsilon", max((part["epsilon"] for part in parts), default=None))
    if not isinstance(epsilon, (int, float)) or isinstance(epsilon, bool):
        name = getattr(function, "__name__", type(function).__name__)
        raise UsageError(
            f"The attack {name} has epsilon={epsilon}; expected one number: give the attack an "
            f"argument epsilon, and name it as functools.partial({name}, epsilon=8 / 255)."
        )
    conditions: dict[str, Any] = {"norm": "linf", "clipped": True, "restarts": 1}
    if "attack" in values:
        conditions |= parts[0]
    elif parts:
        conditions |= {"attacks": parts, "clipped": all(part["clipped"] for part in parts)}
    inner = conditions["restarts"]
    conditions |= _plain(values) | {"epsilon": float(epsilon)}
    if "attack" in values:
        conditions["restarts"] *= inner
    check_radius(conditions["norm"], epsilon=conditions["epsilon"])
    return conditions


def _unwrap(attack: AttackFn) -> tuple[Any, dict[str, Any]]:
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


def _parts(values: Mapping[str, Any]) -> tuple[AttackFn, ...]:
    """The attacks that an attack of `compose` is made of."""
    return (values["attack"],) if "attack" in values else tuple(values.get("attacks", ()))


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by the names that results give them; those that are unset are left out."""
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
    """A value as JSON has it; functions by their names, arrays by their SHA-256."""
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if isinstance(value, (tuple, list)):
        return [_json(item) for item in value]
    if callable(value):
        return f"{value.__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    array = np.ascontiguousarray(value)
    digest = hashlib.sha256(array.tobytes()).hexdigest()[:12]
    return f"{array.dtype}{list(array.shape)} {digest}"


def _at(attack: AttackFn, epsilon: Any, ratio: Any) -> AttackFn:
    function, arguments = _unwrap(attack)
    parts = tuple(_at(part, epsilon, ratio) for part in _parts(arguments))
    if "attack" in arguments:
        arguments["attack"] = parts[0]
    elif parts:
        arguments["attacks"] = parts
    else:
        arguments["epsilon"] = epsilon
        if "step_size" in arguments:
            arguments["step_size"] = arguments["step_size"] * ratio
    return functools.partial(function, *getattr(attack, "args", ()), **arguments)


def _identity(value: Any) -> Hashable:
    """A key that is equal for equal functions and arguments; an array is only equal to itself."""
    if isinstance(value, functools.partial):
        arguments = sorted(value.keywords.items())
        named = ((name, _identity(part)) for name, part in arguments)
        return (value.func, _identity(value.args), *named)
    if isinstance(value, tuple):
        return tuple(map(_identity, value))
    try:
        hash(value)
    except TypeError:
        return _Same(value)
    return (type(value), value)


class _Same:
    """Stands for an object that has no hash; keeps it alive, so that its id stays its own."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __hash__(self) -> int:
        return id(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._value is other._value
