"""Answers questions about L-infinity balls of the plane and polygons inside them exactly.

The vertices of a bounded polygon are among the crossings of the lines of its edges. So each
function evaluates those crossings and searches nothing. Coordinates are offsets u in [-1, 1]^2,
with x' = x + epsilon u.
"""

import functools

import numpy as np

from cat_jax.theory.piecewise import TIE, Part, PiecewiseLinear, affine

SQUARE = np.array([[1.0, 0.0, 1.0], [-1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, -1.0, 1.0]])
PARALLEL = 1e-12


def reaches(points: np.ndarray, epsilon: float, *parts: Part) -> np.ndarray:
    """Returns whether the ball of each point contains an x' that lies in all `parts`.

    A closed polygon is the convex hull of its vertices. If each function that has to be positive is
    positive at some vertex, then all are positive at the mean of the vertices. This decides open
    parts.

    Args:
      points: [N, 2], the centres.
      epsilon: radius of the balls, half the width of the squares.
      *parts: convex regions.

    Returns:
      bool [N].
    """
    rows = np.concatenate([part.rows for part in parts])
    strict = np.concatenate([np.full(len(part.rows), part.is_open) for part in parts])
    _, values, inside = _vertices(points, epsilon, rows, np.empty((0, 3)))
    positive = np.any(inside[:, None, :] & (values[:, 4:] > TIE), axis=2)
    return np.any(inside, axis=1) & np.all(positive | ~strict, axis=1)


def least(
    f: PiecewiseLinear, points: np.ndarray, epsilon: float, side: int, part: Part
) -> np.ndarray:
    """Returns the least side * F over the closure of `part` in the ball of each point, [N].

    F is linear on each cell between the lines F_i = F_j, so its least value is at a vertex of a
    cell. It is +inf where the ball does not meet the part.
    """
    first, second = np.triu_indices(len(f.rows), 1)
    folds = f.rows[first] - f.rows[second]
    offsets, _, inside = _vertices(points, epsilon, part.rows, folds)
    values = side * f(points[:, None, :] + epsilon * offsets)
    return np.min(np.where(inside, values, np.inf), axis=1)


def _vertices(
    points: np.ndarray, epsilon: float, rows: np.ndarray, folds: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns crossings [N, K, 2], constraints there [N, 4 + m, K], and whether all are >= 0."""
    constraints = np.concatenate([_square(len(points)), _in_offsets(rows, points, epsilon)], axis=1)
    lines = np.concatenate([constraints, _in_offsets(folds, points, epsilon)], axis=1)
    first, second = _pairs(lines.shape[1])
    a, b = lines[:, first], lines[:, second]
    determinant = a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
    length = np.abs(a[..., :2]).max(-1) * np.abs(b[..., :2]).max(-1)
    cross = np.abs(determinant) > PARALLEL * length
    divisor = np.where(cross, determinant, 1.0)
    u1 = (a[..., 1] * b[..., 2] - b[..., 1] * a[..., 2]) / divisor
    u2 = (b[..., 0] * a[..., 2] - a[..., 0] * b[..., 2]) / divisor
    offsets = np.stack([u1, u2], axis=-1)
    values = constraints[..., :2] @ offsets.swapaxes(1, 2) + constraints[..., 2:]
    return offsets, values, cross & np.all(values >= -TIE, axis=1)


def _in_offsets(rows: np.ndarray, points: np.ndarray, epsilon: float) -> np.ndarray:
    """Returns the functions [m, 3] of x' as functions of u for each point, [N, m, 3]."""
    slopes = np.broadcast_to(epsilon * rows[:, :2], (len(points), len(rows), 2))
    return np.concatenate([slopes, affine(rows, points)[..., None]], axis=-1)


def _square(num_points: int) -> np.ndarray:
    return np.broadcast_to(SQUARE, (num_points, *SQUARE.shape))


@functools.cache
def _pairs(num_lines: int) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.triu_indices(num_lines, 1)
    return first, second
