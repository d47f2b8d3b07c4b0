"""A traced function as a value: its computation, without the arrays in its closure."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import jax
import numpy as np
from jax.extend import core

from cat_jax.attacks.closures import Reads
from cat_jax.types import Array

Jaxpr = Any  # Its class differs between versions of JAX.


class Frozen:
    """A function that reads only its arguments, so `jit` may cache it by equality."""


class Program(Frozen):
    """A traced function. Two are equal if they compute the same from the same arguments.

    So `jit` compiles again if a number or an operation of the function changes, and not if only its
    arrays change. Custom derivatives are part of the computation.
    """

    def __init__(self, jaxpr: Jaxpr, reads: Reads | None, arguments: tuple[Any, ...]) -> None:
        self._jaxpr = jaxpr
        rules: list[str] = []
        key: tuple[Hashable, ...] = (jax.tree.structure(arguments), _encode(jaxpr, rules))
        if rules and (reads is None or reads.has_rules):
            key += (_encoded_derivative(jaxpr, arguments),)
        elif rules and reads is not None:  # Rules of libraries, on the same values.
            key += tuple(reads.values)
        self._key, self._hash = key, hash(key)

    def __call__(self, consts: list[Array], *arguments: Any) -> Array:
        """Calls the function with these arrays in place of those in its closure."""
        (result,) = jax.core.eval_jaxpr(_inner(self._jaxpr), consts, *jax.tree.leaves(arguments))
        return result

    def __eq__(self, other: object) -> bool:
        """Whether the computation is the same."""
        return isinstance(other, Program) and self._key == other._key

    def __hash__(self) -> int:
        """Hash of the computation; equal programs have equal hashes."""
        return self._hash


def trace(
    function: Callable[..., Array], reads: Reads | None, *arguments: Any
) -> tuple[Program, list[Array]]:
    """Traces `function` again, even if `jit` has cached a trace of it.

    Args:
      function: returns one array.
      reads: values that it reads besides its arguments; None if they are unknown.
      arguments: pytrees of arrays that give shapes and dtypes.

    Returns:
      (program, arrays in the closure), for `program(arrays, *arguments)`.
    """
    closed = jax.make_jaxpr(lambda *arguments: function(*arguments))(*arguments)
    return Program(closed, reads, arguments), list(closed.consts)


class Same:
    """A value that equals only itself. It holds the value, so that no other gets its id."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)


def _encoded_derivative(jaxpr: Jaxpr, arguments: tuple[Any, ...]) -> Hashable:
    """Encodes the program of the gradient, which contains the operations of custom rules."""

    def pulled_back(consts: list[Array], leaves: list[Array]) -> Any:
        def result(leaves: list[Array]) -> Array:
            return jax.core.eval_jaxpr(_inner(jaxpr), consts, *leaves)[0]

        value, pull = jax.vjp(result, leaves)
        return value, pull(value)

    try:
        derivative = jax.make_jaxpr(pulled_back)(list(jaxpr.consts), jax.tree.leaves(arguments))
    except (NotImplementedError, TypeError, ValueError):  # Because it has no derivative to compare.
        return Same(object())
    return _encode(derivative, []), _same(derivative.consts)


def _encode(jaxpr: Jaxpr, rules: list[str]) -> Hashable:
    """Encodes equations with numbered variables; adds names of custom derivatives to `rules`."""
    inner = _inner(jaxpr)
    numbers: dict[Any, int] = {}

    def encode_atom(atom: Any) -> Hashable:
        if isinstance(atom, core.Literal):
            return atom.aval, np.asarray(atom.val).tobytes()
        return numbers.setdefault(atom, len(numbers))

    heads = [(v.aval, encode_atom(v)) for v in (*inner.constvars, *inner.invars)]
    equations = []
    for equation in inner.eqns:
        params = equation.params
        if equation.primitive.name.startswith(("custom_jvp_call", "custom_vjp_call")):
            rules.append(equation.primitive.name)
            params = {k: v for k, v in params.items() if _is_jaxpr(v) or isinstance(v, int)}
        encoded = tuple((name, _encode_param(params[name], rules)) for name in sorted(params))
        atoms = (tuple(map(encode_atom, vs)) for vs in (equation.invars, equation.outvars))
        equations.append((equation.primitive, encoded, *atoms))
    return tuple(heads), tuple(equations), tuple(map(encode_atom, inner.outvars))


def _encode_param(value: Any, rules: list[str]) -> Hashable:
    if _is_jaxpr(value):
        return _encode(value, rules), _same(getattr(value, "consts", ()))
    if isinstance(value, tuple | list):
        return type(value), tuple(_encode_param(v, rules) for v in value)
    if isinstance(value, dict):
        return tuple((k, _encode_param(v, rules)) for k, v in value.items())
    if isinstance(value, bool | int | float | np.generic):
        return type(value), repr(value)  # 0.0 == -0.0, and 1 == True.
    try:
        hash(value)
    except TypeError:
        return Same(value)
    return type(value), value


def _same(values: Iterable[Any]) -> Hashable:
    return tuple(map(Same, values))


def _is_jaxpr(value: Any) -> bool:
    return isinstance(value, core.Jaxpr | core.ClosedJaxpr)


def _inner(jaxpr: Jaxpr) -> Jaxpr:
    """The open program of a closed one. JAX 0.12 has one class for both."""
    return getattr(jaxpr, "jaxpr", jaxpr)
