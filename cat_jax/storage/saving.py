"""Saving during training: a thread writes a copy of the state."""

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

    If the process dies meanwhile, the previous checkpoint remains: the new one gets its name when
    it is complete.
    """

    def __init__(self) -> None:
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "checkpoint")
        self._writing: concurrent.futures.Future[pathlib.Path] | None = None

    def save(self, folder: pathlib.Path, state: PyTree, meta: dict[str, Any], *, keep: int) -> None:
        """`checkpoint.save` of a copy of the state, so that the next step may reuse its memory.

        Raises:
          NonFiniteLoss: if the state is not finite; nothing is written.
        """
        self.wait()
        host = jax.tree.map(np.array, jax.device_get(state))  # Copies, because on CPU it is a view.
        try:
            checkpoint.refuse_non_finite(host)
        except ValueError as error:
            raise NonFiniteLoss(str(error)) from error
        self._writing = self._thread.submit(checkpoint.save, folder, host, meta, keep=keep)

    def poll(self) -> None:
        """Raises the error of a save that has failed; does not wait."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Waits until the save in progress has ended."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Waits, and raises no error of the save."""
        self._thread.shutdown()
