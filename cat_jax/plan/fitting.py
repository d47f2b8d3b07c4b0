"""The largest batch and the fewest parts that fit into the memory of a device."""

import math
from collections.abc import Callable, Iterable

MARGIN = 0.97  # Because memory does not grow exactly in proportion to the batch.
MAX_TRIES = 3


def largest_batch(
    peak_of: Callable[[int], float], memory: float, start: int, multiple: int
) -> int | None:
    """The largest batch size that fits, within a few percent.

    It measures two sizes, follows the line through them, and measures what that gives.

    Args:
      peak_of: batch size -> peak bytes of a device.
      memory: bytes that a device may use.
      start: batch size to begin with, at least two multiples.
      multiple: number of which the size has to be a multiple.

    Returns:
      None if not even one multiple fits.
    """
    half = max(start // 2 // multiple, 1) * multiple
    sizes = {half: peak_of(half), 2 * half: peak_of(2 * half)}
    for _ in range(MAX_TRIES):
        size = _on_the_line(sizes, memory) // multiple * multiple
        if size < multiple or size in sizes:
            break
        sizes[size] = peak_of(size)
        if size == max(sizes) and sizes[size] <= memory:
            return size
    if all(peak > memory for peak in sizes.values()):
        sizes[multiple] = peak_of(multiple)
    return max((size for size, peak in sizes.items() if peak <= memory), default=None)


def _on_the_line(sizes: dict[int, float], memory: float) -> int:
    """Where the line through the two sizes next to the limit reaches it."""
    below = sorted(size for size, peak in sizes.items() if peak <= memory)
    above = sorted(size for size, peak in sizes.items() if peak > memory)
    if below and above:
        first, last = below[-1], above[0]
    else:
        first, last = (below[-2:] or above[:2])[:2]
    if math.isinf(sizes[last]):  # XLA did not compile it, and did not say how much it lacks.
        return (first + last) // 2
    slope = max((sizes[last] - sizes[first]) / (last - first), 1.0)
    return int(MARGIN * (first + (memory - sizes[first]) / slope))


def fewest_parts(
    peak_of: Callable[[int], float], memory: float, parts: Iterable[int]
) -> int | None:
    """The first of these numbers of parts with which a step fits; None if there is none."""
    return next((number for number in parts if peak_of(number) <= memory), None)
