"""Piecewise linear functions of the plane. Their sign regions are unions of convex polygons."""

import dataclasses
import itertools
from typing import NamedTuple

import numpy as np

TIE = 1e-9  # A value nearer to zero than this counts as zero.


@dataclasses.dataclass(frozen=True, eq=False)  # Because comparing arrays gives no single bool.
class PiecewiseLinear:
    """F(x) = the maximum over `groups` of the minimum over a group's affine functions.

    Every continuous piecewise linear function has this form. A single row is a linear classifier,
    a single group is a minimum, and groups of one row are a maximum.

    Attributes:
      groups: arrays [m, 3]; a row (w1, w2, b) is the function w1 x1 + w2 x2 + b.
    """

    groups: tuple[np.ndarray, ...]

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """Returns F [...] at points [..., 2]."""
        least = [np.min(affine(rows, points), axis=-1) for rows in self.groups]
        return np.max(least, axis=0)

    @property
    def rows(self) -> np.ndarray:
        """All affine functions, [m, 3]."""
        return np.concatenate(self.groups)


class Part(NamedTuple):
    """The convex region where all `rows` [m, 3] are >= 0, or > 0 if `is_open`."""

    rows: np.ndarray
    is_open: bool


def affine(rows: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Returns the values [..., m] of the functions `rows` [m, 3] at points [..., 2]."""
    return points @ rows[:, :2].T + rows[:, 2]


def sign(values: np.ndarray) -> np.ndarray:
    """Returns the class of real outputs, -1 or +1; zero is of class +1."""
    return np.where(values >= -TIE, 1, -1)


def region(f: PiecewiseLinear, side: int, *, is_open: bool) -> list[Part]:
    """Returns convex parts, possibly overlapping, with union {side * F >= 0}, or > 0 if `is_open`.

    F <= 0 where one function of each group is <= 0, so each way to choose them gives one part.
    """
    if side > 0:
        return [Part(rows, is_open) for rows in f.groups]
    return [Part(-np.stack(chosen), is_open) for chosen in itertools.product(*f.groups)]


def class_region(f: PiecewiseLinear, side: int) -> list[Part]:
    """Returns the region where `sign` of F is `side`: closed for +1, open for -1."""
    return region(f, side, is_open=side < 0)


def shares_line(f: PiecewiseLinear, other: PiecewiseLinear) -> bool:
    """Returns whether a function of f and one of `other` have the same zeros.

    If not, the two boundaries meet in single points only.
    """
    a, b = (_directions(g.rows) for g in (f, other))
    return bool(np.any(np.abs(np.abs(a @ b.T) - 1.0) < TIE))


def _directions(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
