"""Several processes that train as one: starting them, agreeing, and leaving when one is gone.

Each process holds some of the devices. Process 0 alone reads and writes the run's folder; what it
has read, `from_first` tells the others. One process is the case of all of this that does nothing.
"""

import contextlib
import faulthandler
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

from cat_jax.errors import UsageError, check_choice
from cat_jax.runtime import backend
from cat_jax.types import DEVICES, Array, PyTree

T = TypeVar("T")
# Seconds of silence after which a process is taken for dead. The others then end: within 60.
HEARTBEAT = 30
GRACE = 3  # Seconds.
BLOCK = 4096  # Bytes.
TRY_AGAIN = 75  # Exit status, EX_TEMPFAIL of sysexits.h: nothing to mend, start all again.
# Who tells a process which of how many it is; None: jax looks for itself, last for Kubernetes.
CLUSTERS: dict[str, Callable[[], str | None]] = {
    "slurm": lambda: "slurm",
    "tpu": lambda: "gketpu" if "TPU_WORKER_HOSTNAMES" in os.environ else "gcetpu",
    "k8s": lambda: None,
}


def start(
    coordinator: str | None, num_processes: int | None, process_id: int | None, cluster: str | None
) -> None:
    """Joins the other processes, if any flag says that there are some; before JAX is used.

    Nothing is taken from the environment unless `cluster` asks for it.

    Args:
      coordinator: "host:port" of process 0.
      num_processes: how many there are.
      process_id: which one this is, from 0.
      cluster: of `CLUSTERS`, in place of the other three.

    Raises:
      UsageError: for flags that do not go together, and if the others do not come.
    """
    given = (coordinator, num_processes, process_id) != (None, None, None)
    if cluster is not None:
        check_choice("--cluster", cluster, CLUSTERS)
        if given:
            raise UsageError(
                f"--cluster={cluster} finds --coordinator, --num_processes and --process_id "
                "itself; leave it out, or them."
            )
    elif given:
        _check(coordinator, num_processes, process_id)
    else:
        return
    # Where another process dies, jax says so and aborts: no stack of every thread after that.
    faulthandler.disable()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # Signals are the loop's.
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            cluster_detection_method=CLUSTERS[cluster]() if cluster else "deactivate",
            heartbeat_timeout_seconds=HEARTBEAT,
        )
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        how = f"--cluster={cluster}" if cluster else f"--coordinator={coordinator}"
        raise UsageError(
            f"The processes did not find each other by {how} ({reason}); give all of them the "
            "same --coordinator=HOST:PORT and --num_processes, and each its --process_id."
        ) from error
    backend.check_devices()
    from_first(lambda: None)  # All devices find together now that all processes are here: `_sum`.


def _check(coordinator: str | None, num_processes: int | None, process_id: int | None) -> None:
    if coordinator is None or num_processes is None or process_id is None:
        raise UsageError(
            "Of --coordinator, --num_processes and --process_id, some are missing; give all three, "
            "such as --coordinator=10.0.0.1:1234 --num_processes=2 --process_id=0, or none."
        )
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"--coordinator is {coordinator!r}; expected HOST:PORT of process 0.")
    if not 0 <= process_id < num_processes:
        raise UsageError(
            f"--process_id is {process_id} and --num_processes {num_processes}; "
            "expected process_id from 0 to num_processes - 1."
        )


def is_first() -> bool:
    """Whether this is process 0, which logs, writes and prints."""
    return jax.process_index() == 0


def from_first(compute: Callable[[], T]) -> T:
    """What `compute()` returns or raises on process 0, on all of them; the others do not call it.

    All have to come here, in the same order of calls. They wait for each other.
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
        raise failure
    result: T = value
    return result


def _broadcast(data: bytes) -> bytes:
    """The bytes of process 0."""
    own = np.array([len(data)], np.int32) * is_first()
    size = int(_sum(own)[0])
    padded = np.zeros(math.ceil(size / BLOCK) * BLOCK, np.uint8)  # Most are of one shape then.
    if is_first():
        padded[:size] = np.frombuffer(data, np.uint8)
    return np.asarray(_sum(padded)).tobytes()[:size]


class Agreement:
    """Whether any process says yes. It is told one call late, so that no step waits for it."""

    def __init__(self) -> None:
        self._before: Array | None = None

    def __call__(self, said: bool) -> bool:
        """The answer to the call before this one; at once if there is one process."""
        if jax.process_count() == 1:
            return said
        before, self._before = self._before, _sum(np.array([said], np.int32))
        return before is not None and bool(before[0] > 0)


def _sum(values: np.ndarray) -> Array:
    """The sum over all processes of what each of them gives, [N] -> [N].

    By way of all devices, as in a training step: on CPUs each other set of them would have to find
    together within 30 s at its first use, and processes may compile for longer than that.
    """
    split, add = _over_all_devices()
    rows = np.zeros((jax.local_device_count(), *values.shape), values.dtype)
    rows[0] = values
    return add(jax.make_array_from_process_local_data(split, rows))


@functools.cache
def _over_all_devices() -> tuple[NamedSharding, Callable[[Array], Array]]:
    """How rows are laid over the devices, a row each, and what adds them up."""
    mesh = Mesh(np.array(jax.devices()), (DEVICES,))
    whole = NamedSharding(mesh, PartitionSpec())
    add = jax.jit(lambda rows: rows.sum(0, dtype=rows.dtype), out_shardings=whole)
    return NamedSharding(mesh, PartitionSpec(DEVICES)), add


def places(devices: Sequence[jax.Device]) -> list[int]:
    """Where this process's own stand among all devices, and so in the global batch."""
    return [i for i, d in enumerate(devices) if d.process_index == jax.process_index()]


def spread(tree: PyTree, sharding: Sharding) -> PyTree:
    """Arrays that every process holds whole, laid over the devices of all of them."""
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)

    def put(x: Any) -> Array:
        x = np.asarray(x)
        return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

    return jax.tree.map(put, tree)


def refuse_different(what: str, value: str) -> None:
    """Raises UsageError in a process whose `value` is not that of process 0."""
    if from_first(lambda: value) != value:
        raise UsageError(
            f"Process {jax.process_index()} does not have {what} as process 0 has it; give all of "
            "them the same code and the same files."
        )


def replicate(tree: PyTree, devices: Sequence[jax.Device]) -> PyTree:
    """A copy on each of this process's devices, as a step takes and donates it."""
    mine = np.array([devices[i] for i in places(devices)])
    return jax.device_put(tree, NamedSharding(Mesh(mine, (DEVICES,)), PartitionSpec()))


@contextlib.contextmanager
def outlet(workdir: pathlib.Path) -> Iterator[pathlib.Path]:
    """Where this process writes: process 0 in the workdir, the others in a folder that goes again.

    The others print nothing either. So what writes and prints need not ask which process it is in.
    """
    if is_first():
        yield workdir
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
    ):
        yield pathlib.Path(folder) / workdir.name


def is_loss(error: Exception) -> bool:
    """Whether an error says that another process is gone, and not what is wrong in this one."""
    if jax.process_count() == 1 or "RESOURCE_EXHAUSTED" in str(error):
        return False
    # jaxlib raises some errors of collectives as ValueError.
    return isinstance(error, jax.errors.JaxRuntimeError) or "Gloo" in str(error)


def leave(status: int) -> NoReturn:
    """Ends this process, and does not wait for all of them, of which one is gone or never comes.

    Where they end for the same reason, the others may say it before process 0 is gone: then jax
    aborts them.
    """
    if is_first():
        time.sleep(GRACE)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
