"""When a run validates and saves: after which steps, and after how many minutes."""

import dataclasses
import fractions
import time
from collections.abc import Callable

from cat_jax import data


@dataclasses.dataclass(frozen=True)
class Timetable:
    """The steps after which a run validates and saves.

    Attributes:
      num_steps: number of steps of the run.
      num_examples: size of the training split.
      batch_size: B, global.
      save_every: steps between two checkpoints.
      every_epochs: epochs between two validations; 0: no validation.
    """

    num_steps: int
    num_examples: int
    batch_size: int
    save_every: int
    every_epochs: float

    def epoch(self, step: int) -> float:
        """Epochs that are over after `step` steps."""
        return step * self.batch_size / self.num_examples

    def saves_at(self, step: int) -> bool:
        """Every few steps, and at the end."""
        return step == self.num_steps or step % self.save_every == 0

    def validates_at(self, step: int) -> bool:
        """At the first step after every few epochs, or every part of one, and at the end."""
        if not self.every_epochs:
            return False
        # From its text, because 0.1 in binary is a little more than a tenth.
        every = fractions.Fraction(str(self.every_epochs))
        epochs = fractions.Fraction(step * self.batch_size, self.num_examples)
        clock = data.Clock(self.num_examples, self.batch_size)
        begins = step == clock.steps_until(epochs // every * every)
        return step == self.num_steps or begins

    def steps_in_call(self, step: int, max_steps: int) -> int:
        """Number of steps, at most `max_steps`, up to the next validation or checkpoint."""
        for count in range(1, max_steps):
            if self.validates_at(step + count) or self.saves_at(step + count):
                return count
        return max_steps


class Interval:
    """Measures whether some minutes have passed."""

    def __init__(self, minutes: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Begins now; 0 minutes never pass."""
        self._seconds, self._clock = 60 * minutes, clock
        self.restart()

    def restart(self) -> None:
        """Begins again now."""
        self._begin = self._clock()

    def is_over(self) -> bool:
        """Whether the minutes have passed; then it begins again, so that it is over once."""
        over = bool(self._seconds) and self._clock() - self._begin >= self._seconds
        if over:
            self.restart()
        return over
