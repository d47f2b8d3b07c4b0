"""Saving while training goes on: a thread writes a copy of the state."""

import concurrent.futures
import pathlib
from typing import Any

import jax
import numpy as np

from cat_jax.errors import NonFiniteLoss
from cat_jax.storage import checkpoint
from cat_jax.types import PyTree


class Saver:
    """Writes one checkpoint at a time; if that fails, the next call of any method raises OSError.

    A process that dies meanwhile leaves the checkpoint before: the new one gets its name when it
    is whole.
    """

    def __init__(self) -> None:
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "checkpoint")
        self._writing: concurrent.futures.Future[pathlib.Path] | None = None

    def save(self, folder: pathlib.Path, state: PyTree, meta: dict[str, Any], *, keep: int) -> None:
        """`checkpoint.save` of the state as it is now; the next step may have its memory.

        Raises:
          NonFiniteLoss: if the state is not finite; nothing is written.
        """
        self.wait()
        host = jax.tree.map(np.array, jax.device_get(state))  # A copy: on CPU it was a view.
        try:
            checkpoint.refuse_non_finite(host)
        except ValueError as error:
            raise NonFiniteLoss(str(error)) from error
        self._writing = self._thread.submit(checkpoint.save, folder, host, meta, keep=keep)

    def poll(self) -> None:
        """Raises what has gone wrong so far; does not wait."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Returns when nothing is being written."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Waits, and raises nothing."""
        self._thread.shutdown()
