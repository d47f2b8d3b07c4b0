"""Classifiers and losses as pytrees, so that each call evaluates their current state.

`jit` compares a function by its identity, so it does not notice if a value in the closure changes.
Here all arrays become arguments, and everything else is compared at each call:

  a pytree, such as a `Partial`: its arrays are traced; one compilation serves every checkpoint
  a function that reads no arrays: compared by the numbers and functions that it reads
  any other function or object: traced at each call; the arrays in its closure become arguments, so
    only a different computation compiles again
"""

import dataclasses
import numbers
from collections.abc import Callable, Hashable
from typing import Any

import flax
import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from cat_jax.attacks import closures, programs
from cat_jax.errors import UsageError
from cat_jax.types import Array, LogitsFn, Loss, Views

Check = Callable[..., Array]  # (result of a function, *its arguments) -> the result, checked.
NOT_CONCRETE = (
    jax.errors.ConcretizationTypeError,  # TracerBoolConversionError is one.
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
IN_TRAINING_MODE = (
    flax.errors.TraceContextError,
    flax.errors.ModifyScopeVariableError,
    flax.errors.InvalidRngError,
)


class TrainingMode(UsageError):
    """The classifier changes its state in a call, or draws noise."""

    def __init__(self) -> None:
        super().__init__(
            "logits_fn changes its own state or draws noise, as batch norm and dropout do in "
            "training mode; call model.eval() first (Flax NNX), or pass train=False (Linen)."
        )


def as_logits_fn(logits_fn: LogitsFn, images: Array) -> tuple[Partial, int]:
    """A classifier as a pytree, and its number of classes.

    Raises:
      UsageError: if it is not a function, or does not return logits [B, K].
      TrainingMode: if it changes its state or draws noise.
    """
    _check_callable("logits_fn", logits_fn)
    pytree = as_pytree(logits_fn, _check_logits, images)
    return pytree, jax.eval_shape(_call, pytree, images).shape[-1]


def as_loss(loss: Loss, num_classes: int, images: Array, labels: Array) -> Partial:
    """A loss of views as a pytree that takes logits [B, num_classes].

    Raises:
      UsageError: if it is not a function, or does not return one value for each image.
    """
    _check_callable("loss", loss)
    logits = jax.ShapeDtypeStruct((len(images), num_classes), images.dtype)
    return as_pytree(loss, _check_losses, Views(natural=logits, adversarial=logits), labels)


def as_pytree(function: Any, check: Check, *arguments: Any) -> Partial:
    """`function` as a pytree of its arrays, current at each call.

    Args:
      function: function or object of the caller; a result of `as_pytree` is returned unchanged.
      check: function that checks each result during tracing.
      arguments: arrays with the shapes and dtypes of later calls.
    """
    if isinstance(getattr(function, "func", None), programs.Frozen):
        return function
    structure, arrays = _split(function)
    reads = closures.reads(structure.treedef, *structure.leaves)
    if reads is not None and reads.is_fixed:
        return Partial(_Fixed(structure, tuple(reads.values), check), arrays)

    def call(arrays: list[Array], *arguments: Any) -> Array:
        return structure.call(arrays, check, *arguments)

    program, consts = programs.trace(call, reads, arrays, *arguments)
    return Partial(program, consts, arrays)


class _Array:
    """Placeholder for an array."""


@dataclasses.dataclass(frozen=True)
class _Structure:
    """A callable without its arrays.

    Attributes:
      treedef: structure of the pytree; for a function, that of a leaf.
      leaves: all leaves, with `_Array` in place of the arrays.
    """

    treedef: jax.tree_util.PyTreeDef
    leaves: tuple[Any, ...]

    def call(self, arrays: list[Array], check: Check, *arguments: Any) -> Array:
        """Calls the callable with `arrays` in their places, and checks the result."""
        rest = iter(arrays)
        leaves = [next(rest) if leaf is _Array else leaf for leaf in self.leaves]
        function = self.treedef.unflatten(leaves)
        try:
            result = check(function(*arguments), *arguments)
        except IN_TRAINING_MODE as error:
            raise TrainingMode from error
        except NOT_CONCRETE as error:
            raise UsageError(
                f"logits_fn needs the value of an array that JAX traces ({type(error).__name__}): "
                "bind flags and numbers first, as functools.partial(net.apply, train=False) does, "
                "and compute with jax.numpy."
            ) from error
        after = jax.tree.leaves(function)
        if len(after) != len(leaves) or any(a is not b for a, b in zip(after, leaves, strict=True)):
            raise TrainingMode
        return result


@dataclasses.dataclass(frozen=True)
class _Fixed(programs.Frozen):
    """A callable that reads only the arrays of its pytree; compared by value."""

    structure: _Structure
    values: tuple[Hashable, ...]
    check: Check

    def __call__(self, arrays: list[Array], *arguments: Any) -> Array:
        return self.structure.call(arrays, self.check, *arguments)


def _split(function: Callable[..., Any]) -> tuple[_Structure, list[Array]]:
    """Splits a callable into its structure and its arrays and numbers, which are traced."""
    leaves, treedef = jax.tree.flatten(function)
    if jax.tree_util.treedef_is_leaf(treedef):
        return _Structure(treedef, (function,)), []
    is_array = [
        hasattr(leaf, "dtype") or (isinstance(leaf, numbers.Number) and not isinstance(leaf, bool))
        for leaf in leaves
    ]
    static = [_Array if yes else leaf for leaf, yes in zip(leaves, is_array, strict=True)]
    arrays = [leaf for leaf, yes in zip(leaves, is_array, strict=True) if yes]
    return _Structure(treedef, tuple(static)), arrays


def _call(logits_fn: LogitsFn, images: Array) -> Array:
    return logits_fn(images)


def _check_callable(name: str, function: Any) -> None:
    if not callable(function):
        raise UsageError(
            f"{name} is a {type(function).__name__}; expected a function, such as "
            "jax.tree_util.Partial(module.apply, variables) for a classifier."
        )


def _check_logits(logits: Any, images: Array) -> Array:
    """Logits [B, K] of at least two classes, in float32 at least."""
    expected = f"expected logits [{len(images)}, K], floating"
    if not isinstance(logits, jax.Array):
        raise UsageError(
            f"logits_fn returns a {type(logits).__name__}; {expected}: return the logits alone "
            "(with Flax Linen, leave out `mutable`)."
        )
    given = f"logits_fn returns {logits.dtype}{list(logits.shape)}"
    if logits.ndim != 2 or logits.shape[0] != len(images):
        raise UsageError(f"{given}; {expected}: one row for each image.")
    if not jnp.issubdtype(logits.dtype, jnp.floating):
        raise UsageError(f"{given}; {expected}: return what goes into the softmax.")
    if logits.shape[1] < 2:
        raise UsageError(
            f"{given}; {expected}, of at least 2 classes: for one output z, return "
            "jnp.concatenate([0 * z, z], axis=-1)."
        )
    return logits.astype(jnp.promote_types(logits.dtype, jnp.float32))


def _check_losses(values: Any, logits: Views, labels: Array) -> Array:
    """One value for each image."""
    del logits
    if not isinstance(values, jax.Array) or values.shape != labels.shape:
        form = getattr(values, "shape", type(values).__name__)
        raise UsageError(
            f"loss returns {form}; expected one value for each of the {len(labels)} images, "
            f"[{len(labels)}]: sum over classes, not over the batch."
        )
    return values
