"""Accepted values of a field: numbers in a range, one of several names, a radius."""

import fractions
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from cat_jax.errors import UsageError

MAX_NUMBER = 2**31 - 1  # Because counts become int32.
MAX_RADIUS = {"linf": 1.0, "l2": 100.0, "l1": 10_000.0}


class Limit(NamedTuple):
    """The values that a field accepts.

    Attributes:
      types: types of the values.
      accepts: value -> bool, for values of these types.
      expected: ends the error message, "expected at least 1".
      choices: the accepted names, if the field has a fixed list.
    """

    types: tuple[type, ...]
    accepts: Callable[[Any], bool]
    expected: str
    choices: tuple[str, ...] = ()

    def check(self, path: str, value: Any) -> Any:
        """Returns `value`; raises a UsageError that names the field if the field refuses it."""
        is_bool = isinstance(value, bool)  # Because Python counts it as an int.
        fits = isinstance(value, self.types) and (bool in self.types or not is_bool)
        if fits and self.accepts(value):
            return value
        raise UsageError(f"config.{path} is {value!r}; {self.expected}.")


def at_least(least: float, below: float | None = None) -> Limit:
    """Numbers of at least `least`, up to `MAX_NUMBER` or below `below`."""
    if below is not None:
        expected = f"expected at least {least}, less than {below}"
        return Limit((int, float), lambda x: least <= x < below, expected)
    expected = f"expected at least {least}, at most {MAX_NUMBER}"
    return Limit((int, float), lambda x: least <= x <= MAX_NUMBER, expected)


def one_of(*choices: str) -> Limit:
    """One of a few names."""
    return Limit((str,), choices.__contains__, f"available: {', '.join(choices)}", choices)


def numbers(*, above: float = float("-inf")) -> Limit:
    """A tuple of numbers above a bound."""
    expected = "expected a tuple of numbers" + (f" above {above:g}" if above > -MAX_NUMBER else "")
    return Limit((tuple,), lambda xs: all(_is_number(x) and x > above for x in xs), expected)


def _is_number(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and abs(value) <= MAX_NUMBER


def _are_epochs(values: tuple[Any, ...]) -> bool:
    are_counts = all(type(value) is int and 0 <= value <= MAX_NUMBER for value in values)
    return are_counts and all(a < b for a, b in itertools.pairwise(values))


PROBABILITY = Limit((int, float), lambda x: 0 <= x <= 1, "expected a probability, from 0 to 1")
SHARE = Limit((int, float), lambda x: 0 < x < 1, "expected a share above 0 and below 1")
ABOVE_0 = Limit((int, float), lambda x: 0 < x <= MAX_NUMBER, "expected a number above 0")
# Because the checks of a classifier compare images with one another.
NONE_OR_SEVERAL = Limit(
    (int,), lambda n: n == 0 or 2 <= n <= MAX_NUMBER, "expected 0, or at least 2"
)
EPOCHS = Limit((tuple,), _are_epochs, "expected epochs from 0 on in rising order, such as (30, 60)")
SWITCH = Limit((bool,), lambda value: True, "expected True or False")
# A name that another module checks, because plugins can register more names.
NAME = Limit((str,), lambda value: True, "expected a name")
NAMES = Limit(
    (tuple,), lambda values: all(isinstance(value, str) for value in values), "expected names"
)
# Text such as "8/255", which `read_radius` turns into a number. A radius of 0 would attack nothing,
# but a start of 0 is the image itself.
RADIUS = Limit((str, float), lambda value: True, "expected a radius or a step size above 0")
START = Limit((str, float), lambda value: True, "expected a radius")


def _are_balls(values: tuple[Any, ...]) -> bool:
    parts = [str(value).partition(":") for value in values]
    return all(norm in MAX_RADIUS and colon and text for norm, colon, text in parts)


UNION = Limit((tuple,), _are_balls, 'expected balls NORM:RADIUS, such as ("l2:0.5", "l1:12")')


def read_radius(name: str, text: str | float, norm: str, epsilon: float | None = None) -> float:
    """The number for "8/255" or "0.0314", or with an epsilon for "epsilon/20".

    Errors call it `name`, such as "config.attack.epsilon".

    Raises:
      UsageError: for other text, and for a radius that is too large for the norm.
    """
    head, slash, divisor = str(text).partition("/")
    relative = epsilon is not None and head == "epsilon"
    try:
        if relative:
            value = fractions.Fraction(radius_text(epsilon or 0.0))
            value = value / fractions.Fraction(divisor) if slash else value
        else:
            value = fractions.Fraction(text)
        number = float(value)
    except (ValueError, ZeroDivisionError, OverflowError, TypeError):
        raise UsageError(
            f"{name} is {text!r}; expected a number such as 0.0314 or 8/255."
        ) from None
    if 0.0 <= number <= MAX_RADIUS[norm]:
        return number
    if norm == "linf":
        raise UsageError(
            f"{name} is {text}; expected [0, 1], a part of the pixel range: "
            f"for {text} of 255 grey levels write {text}/255."
        )
    raise UsageError(f"{name} is {text}; expected at most {MAX_RADIUS[norm]:g} in {norm}.")


def radius_text(radius: float) -> str:
    """The radius as "0.3" or "8/255", from which `read_radius` returns the same number."""
    levels = round(255 * radius)
    for text in (f"{radius:g}", f"{levels}/255"):
        if float(fractions.Fraction(text)) == radius:
            return text
    return repr(radius)
