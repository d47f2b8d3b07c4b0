"""An attack with its name in results, and the conditions that its arguments set."""

import functools
from collections.abc import Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

from cat_jax.attacks import closures, programs
from cat_jax.attacks.conditions import MINIMUM_NORM, AttackFn, describe, parts_of, unwrap
from cat_jax.errors import UsageError


class NamedAttack(NamedTuple):
    """An attack with the name of its results.

    Attributes:
      name: name in results, such as "pgd20". Only `conditions` identify a result.
      attack: (logits_fn, images, labels, keys) -> images, or images and the forward passes on
        each, int32 [B]; None for natural accuracy. Its radius is its argument `epsilon`:
        `functools.partial(attacks.pgd, epsilon=8 / 255, step_size=2 / 255, num_steps=20)`.
      after: the attack before it in a cascade. It attacks only the images that are still right
        after that one, and its flags are those of both.
      queries: number of forward passes on each image, if the attack does not count them.
      plugins: module outside cat_jax that registered it, as `plugins_of` names it.
      worst_of: attacks whose worst case for each image this is; then `attack` is None.
    """

    name: str
    attack: AttackFn | None
    after: "NamedAttack | None" = None
    queries: int = 1
    plugins: Mapping[str, str] = MappingProxyType({})
    worst_of: "tuple[NamedAttack, ...]" = ()

    @property
    def conditions(self) -> dict[str, Any]:
        """The arguments that decide the images, as plain JSON values.

        For each earlier attack of a cascade, "after" has the arguments that differ.

        Raises:
          UsageError: if the radius is missing or outside its range.
        """
        *earlier, own = (attack._arguments() for attack in self.chain())
        after = [_difference(arguments, own) for arguments in earlier]
        return own | ({"after": after} if after else {})

    @property
    def identity(self) -> Hashable | None:
        """Key that is equal for equal functions, states and arguments; None if it is unknown."""
        try:
            return _identity(self.attack)
        except _Unknown:
            return None

    @property
    def is_minimum_norm(self) -> bool:
        """Does the attack look for the nearest adversarial image?"""
        return self.attack is not None and _innermost(self.attack) in MINIMUM_NORM

    def chain(self) -> "list[NamedAttack]":
        """The cascade up to this attack, in the order of the attacks."""
        return [*(self.after.chain() if self.after else ()), self]

    def along(self, epsilons: Iterable[float]) -> "list[NamedAttack]":
        """The attack at each radius in rising order, each after the one before it.

        A ball contains all smaller ones, so an image that is fooled in one of them stays fooled.
        An attack that minimises the distance follows none: one run has the results at all radii.
        """
        points: list[NamedAttack] = []
        for epsilon in sorted({float(epsilon) for epsilon in epsilons}):
            after = points[-1] if points and not self.is_minimum_norm else None
            points.append(self.at(epsilon)._replace(after=after))
        return points

    def at(self, epsilon: Any) -> "NamedAttack":
        """The attack at another radius; its step size keeps its ratio to the radius.

        An attack that minimises the distance keeps its step size.

        Args:
          epsilon: radius, a number or a traced scalar.

        Raises:
          UsageError: for natural accuracy, a radius of 0, and a union of balls of several norms.
        """
        if self.attack is None:
            raise UsageError(f"{self.name} is no attack and has no radius; expected an attack.")
        if self.conditions["norm"] == "union":
            raise UsageError(
                f"{self.name} attacks in balls of several norms, which have no common radius; "
                "expected attacks in one norm."
            )
        if not (own := self.conditions["epsilon"]):
            raise UsageError(
                f"{self.name} has radius 0; expected above 0: its step size keeps its ratio to it."
            )
        return self._replace(attack=_at(self.attack, epsilon, epsilon / own))

    def _arguments(self) -> dict[str, Any]:
        named = {"attack": self.name} | ({"plugins": {**self.plugins}} if self.plugins else {})
        if self.worst_of:
            members = [member.conditions for member in self.worst_of]
            shared = ("norm", "epsilon", "clipped", "search_precision")
            common = {name: members[0][name] for name in shared if name in members[0]}
            return named | common | {"attacks": members}
        return named | (describe(self.attack) if self.attack else {})


def _difference(earlier: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an earlier attack of a cascade that differ from those of the last one."""
    names = (
        earlier if len(earlier) == 1 else own | earlier
    )  # Because natural accuracy has only a name.
    return {k: earlier.get(k) for k in names if k not in own or earlier.get(k) != own[k]}


def _innermost(attack: AttackFn) -> Any:
    """The function of an attack, without what repeats it or sets its precision."""
    function, arguments = unwrap(attack)
    return _innermost(arguments["attack"]) if "attack" in arguments else function


def _at(attack: AttackFn, epsilon: Any, ratio: Any) -> AttackFn:
    function, arguments = unwrap(attack)
    parts = tuple(_at(part, epsilon, ratio) for part in parts_of(arguments))
    if "attack" in arguments:
        arguments["attack"] = parts[0]
    elif parts:
        arguments["attacks"] = parts
    else:
        arguments["epsilon"] = epsilon
        if "step_size" in arguments and function not in MINIMUM_NORM:
            arguments["step_size"] = arguments["step_size"] * ratio
    return functools.partial(function, *getattr(attack, "args", ()), **arguments)


def _identity(value: Any) -> Hashable:
    """Key that is equal for equal functions, arguments, and states that they read.

    Raises:
      _Unknown: for a value that may change while its key does not, such as a function that reads a
        list.
    """
    if isinstance(value, functools.partial):
        arguments = sorted(value.keywords.items())
        named = ((name, _identity(part)) for name, part in arguments)
        return (_identity(value.func), _identity(value.args), *named)
    if isinstance(value, tuple):
        return tuple(map(_identity, value))
    if isinstance(value, jax.Array):
        return programs.Same(value)
    read = closures.reads(value)
    if read is None or not read.is_fixed:
        raise _Unknown
    return tuple(read.values)


class _Unknown(Exception):
    """There is no key."""
