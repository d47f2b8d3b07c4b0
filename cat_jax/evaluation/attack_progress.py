"""A progress bar for each attack, with the time that it will take judged by the attacks before."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cat_jax.runtime import terminal

GRADIENT_COST = 3  # Forward passes that take as long as a gradient.


class AttackProgress:
    """Shows a bar over the images of an attack, and remembers how fast the attack was."""

    def __init__(self, *, shown: bool | None = None) -> None:
        """Shows nothing yet; `shown` is as in `terminal.Progress`."""
        self._shown = shown
        self._seconds_per_pass: float | None = None

    @contextlib.contextmanager
    def bar(
        self, text: str, conditions: Mapping[str, Any], total: int, num_attacked: int
    ) -> Iterator[Callable[[int], object]]:
        """Yields a function of how many images are done; it is first called after compilation.

        Args:
          text: name of the attack.
          conditions: arguments of the attack, as in `NamedAttack.conditions`.
          total: number of images of the bar.
          num_attacked: number of images that the attack has to attack.
        """
        passes, rate = forward_passes(conditions), self._seconds_per_pass
        expected = rate * passes * num_attacked if rate else None
        calls: list[tuple[float, int]] = []
        bar = terminal.Progress(text, total, "image", expected=expected, shown=self._shown)
        with bar as progress:

            def on_batch(num_done: int) -> None:
                calls.append((time.monotonic(), num_done))
                progress.update(num_done)

            yield on_batch
        if not calls:
            return
        (begin, first), (end, last) = calls[0], calls[-1]  # A resumed attack begins at `first`.
        if last > first:
            self._seconds_per_pass = (end - begin) / (passes * (last - first))


def forward_passes(conditions: Mapping[str, Any]) -> int:
    """About how many forward passes an attack makes on an image; a gradient counts as three."""
    steps = conditions.get("num_steps", 0) * conditions.get("restarts", 1)
    steps *= conditions.get("num_targets", 1)
    return int(GRADIENT_COST * steps + conditions.get("num_queries", 0) + 1)
