"""Errors for users of cat_jax. Standard library only, so that any module may import them."""

from collections.abc import Iterable


class UsageError(ValueError):
    """The caller can fix this: one line that says what was given, what was expected, the remedy."""


class Damaged(ValueError):
    """A file differs from what was written; the message names the file and the remedy."""


class NonFiniteLoss(RuntimeError):
    """A loss or a parameter is NaN or infinite; the message names the step."""


def check_choice(name: str, value: str, choices: Iterable[str]) -> str:
    """Returns `value` if it is one of `choices`; otherwise raises a UsageError that names them."""
    if value not in choices:
        raise UsageError(f"{name} is {value!r}; available: {', '.join(choices)}.")
    return value


def in_one_line(error: Exception) -> str:
    """The type and message of an error that a library raised, without line breaks."""
    return " ".join(f"{type(error).__name__}: {error}".split())
