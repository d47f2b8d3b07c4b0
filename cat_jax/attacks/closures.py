"""Lists what a function reads besides its arguments: closure, defaults, globals.

`jit` compares functions only by their identity. A function still computes the same if everything
that it reads is known and unchanged. Otherwise only a new trace can show that.
"""

import dataclasses
import enum
import functools
import types
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import jax
import numpy as np
from flax import linen as nn

# Libraries whose functions and classes are assumed to compute the same at every call.
LIBRARIES = frozenset(
    "builtins functools itertools math operator typing dataclasses collections enum abc _abc "
    "jax jaxlib numpy flax optax equinox haiku cat_jax".split()
)
FRAMEWORKS = frozenset("dataclasses jax jaxlib flax equinox haiku _abc".split())
PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
FUNCTIONS_OF_C = (types.BuiltinFunctionType, types.MethodDescriptorType, np.ufunc, jax.numpy.ufunc)
DESCRIPTORS = types.MemberDescriptorType | types.GetSetDescriptorType
JITTED = type(jax.jit(lambda: None))
# The class by which JAX makes a `functools.partial` in a `Partial` hashable.
HASHABLE_PARTIAL: Any = type(jax.tree_util.Partial(functools.partial(len)).func)
RULES = frozenset({"custom_jvp", "custom_vjp", "custom_gradient"})
OF_LINEN = frozenset({"parent", "name", "scope"})


@dataclasses.dataclass
class Reads:
    """The values that a callable reads and that decide its computation.

    Attributes:
      values: code of functions, classes, modules, structures, names, numbers and text with their
        types, in reading order. Callables with equal lists compute the same, apart from arrays.
      is_fixed: whether it reads no arrays, lists, dictionaries or objects, whose contents may
        change between calls.
      has_rules: whether code outside the libraries may define custom derivatives.
    """

    values: list[Hashable]
    is_fixed: bool = True
    has_rules: bool = False


def reads(*callables: Any) -> Reads | None:
    """Lists what functions, objects or pytree structures read; None if that is unknown."""
    walk = _Walk()
    try:
        for value in callables:
            walk.visit(value)
    except _Unknown:
        return None
    return walk.reads


class _Unknown(Exception):
    """A value may change without a visible sign."""


class _Walk:
    """Visits everything that a value refers to, each object once."""

    def __init__(self) -> None:
        self.reads = Reads([])
        # id -> (number, value). It holds the values, because ids of deleted objects are reused.
        self._visited: dict[int, tuple[int, Any]] = {}

    def visit(self, value: Any) -> None:
        """Adds `value` and everything that it reads."""
        if type(value) in PLAIN or isinstance(value, np.generic | np.dtype | enum.Enum):
            self.reads.values.append((type(value), repr(value)))
        elif isinstance(value, jax.Array | np.ndarray):
            self.reads.is_fixed = False
        elif id(value) in self._visited:
            self.reads.values.append(self._visited[id(value)][0])
        else:
            self._visited[id(value)] = len(self._visited), value
            for part in self._parts(value):
                self.visit(part)

    def _parts(self, value: Any) -> Iterator[Any]:
        match value:
            case types.FunctionType():
                self._add(value.__code__)  # Because a lambda is a new object at each call.
                yield from self._parts_of_function(value)
            case type():
                self._add(value)
                yield from _parts_of_class(value)
            case types.ModuleType() if _is_library(value.__name__):
                self._add(value)
            case jax.tree_util.PyTreeDef():
                self._add(value)
                yield from _parts_of_structure(value)
            case types.MethodType():
                yield from (value.__self__, value.__func__)
            case functools.partial() if not _is_pytree(value):
                yield from (value.func, value.args, *value.keywords, *value.keywords.values())
            case staticmethod() | classmethod():
                yield value.__func__
            case property():
                yield from (value.fget,)
            case jax.custom_jvp() | jax.custom_vjp():
                self._add(value)
                self.reads.has_rules |= not _is_library(value.__module__)
                yield from (getattr(value, name, None) for name in ("fun", "jvp", "fwd", "bwd"))
            case _ if isinstance(value, JITTED):
                self._add(value)
                yield vars(value)["__wrapped__"]
            case _ if isinstance(value, FUNCTIONS_OF_C) and _is_stateless(value):
                self._add(value)
            case nn.Module() if value.scope is None:
                yield from _parts_of_dataclass(value)
            case _ if _is_pytree(value):
                leaves, structure = jax.tree.flatten(value)
                self.reads.is_fixed &= not isinstance(value, list | dict)
                yield from (structure, *leaves)
            case _ if _is_frozen(value):
                yield from _parts_of_dataclass(value)
            case _ if not _is_library(type(value).__module__) and hasattr(value, "__dict__"):
                self.reads.is_fixed = False
                yield from (type(value), *vars(value), *vars(value).values())
            case _ if _is_constant(value):
                self._add(value)
            case _:
                raise _Unknown

    def _parts_of_function(self, function: types.FunctionType) -> Iterator[Any]:
        if not _is_library(function.__globals__.get("__name__", "")):
            names = _names(function.__code__)
            self.reads.has_rules |= not RULES.isdisjoint(names)
            for name in sorted(names & function.__globals__.keys()):
                self._add(name)
                yield function.__globals__[name]
            yield from vars(function).values()
        for cell in function.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # Because the variable has no value yet.
                raise _Unknown from None
        yield from function.__defaults__ or ()
        yield from (function.__kwdefaults__ or {}).values()

    def _add(self, value: Hashable) -> None:
        try:
            hash(value)
        except TypeError:
            raise _Unknown from None
        self.reads.values.append(value)
        self.reads.has_rules |= getattr(value, "__name__", value) in RULES


def _names(code: types.CodeType) -> set[str]:
    """Names of globals and attributes in the code and in the functions inside it."""
    inside = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return set(code.co_names).union(*map(_names, inside))


def _parts_of_class(cls: type) -> Iterator[Any]:
    for base in cls.__mro__:
        if _is_library(base.__module__):
            continue
        yield base
        for name, member in vars(base).items():
            code = getattr(member, "__code__", None)
            if code is not None:
                if code.co_filename != "<string>":  # Because `dataclasses` generates such code.
                    yield member
            elif not (name.startswith("__") or name in OF_LINEN or isinstance(member, DESCRIPTORS)):
                if not (name.startswith("_") and _is_of_a_framework(member)):
                    yield member


def _parts_of_structure(treedef: jax.tree_util.PyTreeDef) -> Iterator[Any]:
    """Yields classes of the nodes, and functions and objects in their static parts.

    Equal structures have equal static parts, so it yields only values that can change while their
    identity stays the same.
    """
    if (node := treedef.node_data()) is not None:
        cls, static = node
        if not (_is_library(cls.__module__) or issubclass(cls, tuple | list | dict)):
            yield cls
        yield from _changeable(static)
    yield from treedef.children()


def _changeable(static: Any) -> Iterator[Any]:
    static = static.fun if isinstance(static, HASHABLE_PARTIAL) else static
    if isinstance(static, dict):
        static = tuple(static.values())
    if isinstance(static, tuple | list):
        for part in static:
            yield from _changeable(part)
    elif callable(static) or not _is_library(type(static).__module__):
        yield static
    elif isinstance(static, np.ndarray):
        raise _Unknown


def _parts_of_dataclass(value: Any) -> Iterator[Any]:
    yield type(value)
    for field in dataclasses.fields(value):
        if field.name not in OF_LINEN:
            yield getattr(value, field.name)


def _is_frozen(value: Any) -> bool:
    parameters = getattr(type(value), "__dataclass_params__", None)
    return parameters is not None and parameters.frozen


def _is_constant(value: Any) -> bool:
    """Whether a value is a marker without contents, such as the one for a missing default."""
    is_empty = not callable(value) and not getattr(value, "__dict__", None)
    return type(value) is object or (is_empty and _is_of_a_framework(value))


def _is_of_a_framework(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] in FRAMEWORKS


def _is_pytree(value: Any) -> bool:
    return not jax.tree_util.all_leaves([value])


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in LIBRARIES


def _is_stateless(function: Callable[..., Any]) -> bool:
    """Whether a C function is not bound to an object, as `list.append` of a list is."""
    bound_to = getattr(function, "__self__", None)
    return bound_to is None or isinstance(bound_to, types.ModuleType)
