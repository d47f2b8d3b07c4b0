"""The largest batch and the fewest parts that fit into the memory of a device."""

from collections.abc import Callable, Iterable

MARGIN = 0.97  # Because memory does not grow exactly in proportion to the batch.
MAX_TRIES = 3


def largest_batch(
    peak_of: Callable[[int], float], memory: float, start: int, multiple: int
) -> int | None:
    """The largest batch size that fits, within a few percent.

    It measures two sizes, follows the line through them, and measures the result.

    Args:
      peak_of: batch size -> peak bytes of a device.
      memory: bytes that a device may use.
      start: batch size to begin with, at least two multiples.
      multiple: number of which the size has to be a multiple.

    Returns:
      None if not even one multiple fits.
    """
    half = max(start // 2 // multiple, 1) * multiple
    full = 2 * half
    low, high = peak_of(half), peak_of(full)
    slope = max((high - low) / (full - half), 1.0)
    size = int(MARGIN * (half + (memory - low) / slope)) // multiple * multiple
    for _ in range(MAX_TRIES):
        if size < multiple:
            break
        if peak_of(size) <= memory:
            return size
        size = int(0.9 * size) // multiple * multiple
    return next((n for n in (full, half, multiple) if peak_of(n) <= memory), None)


def fewest_parts(
    peak_of: Callable[[int], float], memory: float, parts: Iterable[int]
) -> int | None:
    """The first of these numbers of parts with which a step fits; None if there is none."""
    return next((number for number in parts if peak_of(number) <= memory), None)
