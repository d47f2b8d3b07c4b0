"""Several processes that train together: messages from process 0, agreement, and their end.

Each process holds some of the devices. Process 0 alone reads and writes the run's folder, and
`from_first` sends the others what it read. With one process these functions do nothing.
"""

import contextlib
import functools
import logging
import math
import os
import pathlib
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from cat_jax.errors import UsageError
from cat_jax.types import DEVICES, Array, PyTree

T = TypeVar("T")
GRACE = 3  # Seconds that process 0, which serves the others, waits before it ends.
BLOCK = 4096  # Bytes; the size of a message is a multiple.
TRY_AGAIN = 75  # Exit status, EX_TEMPFAIL of sysexits.h: start all processes again.
FROM_FIRST = "Process 0 raised this error."


def is_first() -> bool:
    """Whether this is process 0, which logs, writes and prints."""
    return jax.process_index() == 0


def from_first(compute: Callable[[], T]) -> T:
    """Returns or raises, in every process, what `compute()` returns or raises in process 0.

    The other processes do not call `compute`. All processes must make this call, in the same order
    of calls, and wait for each other.
    """
    if jax.process_count() == 1:
        return compute()
    outcome: tuple[Any, Exception | None] = (None, None)
    if is_first():
        try:
            outcome = (compute(), None)
        except Exception as error:
            outcome = (None, error)
    value, failure = pickle.loads(_broadcast(pickle.dumps(outcome)))
    if failure is not None:
        if not is_first():
            failure.add_note(FROM_FIRST)
        raise failure
    result: T = value
    return result


def is_from_first(error: Exception) -> bool:
    """Whether `from_first` raised the error of process 0 in this other process."""
    return FROM_FIRST in getattr(error, "__notes__", ())


def _broadcast(data: bytes) -> bytes:
    """The bytes of process 0."""
    own = np.array([len(data)], np.int32) * is_first()
    size = int(_sum(own)[0])
    padded = np.zeros(math.ceil(size / BLOCK) * BLOCK, np.uint8)  # Most are of one shape then.
    if is_first():
        padded[:size] = np.frombuffer(data, np.uint8)
    return np.asarray(_sum(padded)).tobytes()[:size]


class Agreement:
    """Whether any process answers yes; known one call later, so that no step waits for it."""

    def __init__(self) -> None:
        self._before: Array | None = None

    def __call__(self, *answers: bool) -> list[bool]:
        """The common answers of the previous call; with one process, `answers` themselves."""
        if jax.process_count() == 1:
            return list(answers)
        before, self._before = self._before, _sum(np.array(answers, np.int32))
        return [False] * len(answers) if before is None else [bool(n) for n in np.asarray(before)]


def _sum(values: np.ndarray) -> Array:
    """The sum of the arguments of all processes, [N] -> [N].

    It runs on all devices, as a training step does: on CPUs any other set of devices must connect
    within 30 s of its first use, and compilation in a process may take longer.
    """
    split, add = _over_all_devices()
    rows = np.zeros((jax.local_device_count(), *values.shape), values.dtype)
    rows[0] = values
    return add(jax.make_array_from_process_local_data(split, rows))


@functools.cache
def _over_all_devices() -> tuple[NamedSharding, Callable[[Array], Array]]:
    """The sharding that gives each device a row, and the function that adds the rows."""
    mesh = Mesh(np.array(jax.devices()), (DEVICES,))
    replicated = NamedSharding(mesh, PartitionSpec())
    add = jax.jit(lambda rows: rows.sum(0, dtype=rows.dtype), out_shardings=replicated)
    return NamedSharding(mesh, PartitionSpec(DEVICES)), add


def places(devices: Sequence[jax.Device]) -> list[int]:
    """Positions of this process's devices among all devices, and so in the global batch."""
    return [i for i, d in enumerate(devices) if d.process_index == jax.process_index()]


def spread(tree: PyTree, sharding: Sharding) -> PyTree:
    """Arrays, which every process holds completely, in a sharding over the devices of all."""
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)

    def put(x: Any) -> Array:
        x = np.asarray(x)
        return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

    return jax.tree.map(put, tree)


def refuse_different(name: str, value: str) -> None:
    """Raises UsageError in a process whose `value` is not that of process 0.

    Args:
      name: what has the value, for the error, such as "the data set mnist".
      value: its fingerprint.
    """
    if from_first(lambda: value) != value:
        raise UsageError(
            f"In process {jax.process_index()} {name} is not that of process 0; give all processes "
            "the same code and the same files."
        )


def replicate(tree: PyTree, devices: Sequence[jax.Device]) -> PyTree:
    """A copy on each of this process's devices, which a step may donate."""
    mine = np.array([devices[i] for i in places(devices)])
    return jax.device_put(tree, NamedSharding(Mesh(mine, (DEVICES,)), PartitionSpec()))


@contextlib.contextmanager
def outlet(workdir: pathlib.Path) -> Iterator[pathlib.Path]:
    """The folder that this process writes: the workdir in process 0, else a temporary folder.

    The other processes print nothing either, so code that writes and prints is the same in all.
    """
    if is_first():
        yield workdir
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        open(os.devnull, "w") as null,
        contextlib.redirect_stdout(null),
    ):
        yield pathlib.Path(folder) / workdir.name


def is_loss(error: Exception) -> bool:
    """Whether an error reports the loss of another process, and not a fault of this one."""
    if jax.process_count() == 1 or "RESOURCE_EXHAUSTED" in str(error):
        return False
    # jaxlib raises some errors of collectives as ValueError.
    return isinstance(error, jax.errors.JaxRuntimeError) or "Gloo" in str(error)


def leave(status: int) -> NoReturn:
    """Ends this process without waiting for the others, one of which may be lost.

    Process 0 ends last, because jax aborts the others once it is gone: so each of them can report
    its error first.
    """
    if is_first():
        time.sleep(GRACE)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
