"""Piecewise linear functions of the plane, whose sign regions are unions of convex polygons."""

import dataclasses
import itertools
from typing import NamedTuple

import numpy as np

TIE = 1e-9  # Of a function's value: what is nearer to zero counts as zero.


@dataclasses.dataclass(frozen=True, eq=False)  # Arrays have no one truth to compare by.
class PiecewiseLinear:
    """F(x) = the maximum over `groups` of the minimum over a group's affine functions.

    Every continuous piecewise linear function has this form. One row alone is a linear classifier,
    one group a minimum, groups of one row a maximum.

    Attributes:
      groups: each [m, 3]: a row (w1, w2, b) is the function w1 x1 + w2 x2 + b.
    """

    groups: tuple[np.ndarray, ...]

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """[..., 2] -> F, [...]."""
        least = [np.min(affine(rows, points), axis=-1) for rows in self.groups]
        return np.max(least, axis=0)

    @property
    def rows(self) -> np.ndarray:
        """All affine functions, [m, 3]."""
        return np.concatenate(self.groups)


class Part(NamedTuple):
    """A convex region: where all `rows` [m, 3] are >= 0, or > 0 if it is `is_open`."""

    rows: np.ndarray
    is_open: bool


def affine(rows: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Values [..., m] of the functions `rows` [m, 3] at points [..., 2]."""
    return points @ rows[:, :2].T + rows[:, 2]


def sign(values: np.ndarray) -> np.ndarray:
    """The class of real outputs, in {-1, +1}: zero is of class +1."""
    return np.where(values >= -TIE, 1, -1)


def region(f: PiecewiseLinear, side: int, *, is_open: bool) -> list[Part]:
    """Convex parts, which may overlap, whose union is {side * F >= 0}, or > 0 if `is_open`.

    F <= 0 where in each group one function is <= 0: one part for each way to choose them.
    """
    if side > 0:
        return [Part(rows, is_open) for rows in f.groups]
    return [Part(-np.stack(chosen), is_open) for chosen in itertools.product(*f.groups)]


def class_region(f: PiecewiseLinear, side: int) -> list[Part]:
    """Where the class of F, as `sign` has it, is `side`: closed for +1, open for -1."""
    return region(f, side, is_open=side < 0)


def shares_line(f: PiecewiseLinear, other: PiecewiseLinear) -> bool:
    """Has a function of f the zeros of one of the other's?

    If not, the two boundaries meet in single points alone.
    """
    a, b = (_directions(g.rows) for g in (f, other))
    return bool(np.any(np.abs(np.abs(a @ b.T) - 1.0) < TIE))


def _directions(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
