"""Connects several processes, from flags or with the help of a scheduler."""

import faulthandler
import os
from collections.abc import Callable

import jax

from cat_jax.errors import UsageError, check_choice
from cat_jax.runtime import backend, processes

# Seconds without a sign of life after which a process counts as dead. The others end within 60.
HEARTBEAT = 30
# How jax finds the number of processes and the index of this one; None: jax chooses, and tries
# Kubernetes last.
CLUSTERS: dict[str, Callable[[], str | None]] = {
    "slurm": lambda: "slurm",
    "tpu": lambda: "gketpu" if "TPU_WORKER_HOSTNAMES" in os.environ else "gcetpu",
    "k8s": lambda: None,
}


def start(
    coordinator: str | None, num_processes: int | None, process_id: int | None, cluster: str | None
) -> None:
    """Connects this process to the others, if a flag says that there are others.

    Call it before the first use of JAX. It reads the environment only if `cluster` is set.

    Args:
      coordinator: "host:port" of process 0.
      num_processes: number of processes.
      process_id: index of this process, from 0.
      cluster: a key of `CLUSTERS`, instead of the other three.

    Raises:
      UsageError: for flags that contradict each other, and if the processes do not connect.
    """
    has_numbers = (coordinator, num_processes, process_id) != (None, None, None)
    if cluster is not None:
        check_choice("--cluster", cluster, CLUSTERS)
        if has_numbers:
            raise UsageError(
                f"--cluster={cluster} finds --coordinator, --num_processes and --process_id "
                "itself; drop --cluster, or the other three."
            )
    elif has_numbers:
        _check(coordinator, num_processes, process_id)
    else:
        return
    # Because jax reports the death of another process and aborts: a stack of each thread is noise.
    faulthandler.disable()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # The loop handles signals.
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
        flag = f"--cluster={cluster}" if cluster else f"--coordinator={coordinator}"
        raise UsageError(
            f"The processes did not connect by {flag} ({reason}); give all of them the "
            "same --coordinator=HOST:PORT and --num_processes, and each its --process_id."
        ) from error
    backend.check_devices()
    # Connects all devices, as `processes.from_first` does first, while all processes wait.
    processes.from_first(lambda: None)


def _check(coordinator: str | None, num_processes: int | None, process_id: int | None) -> None:
    if coordinator is None or num_processes is None or process_id is None:
        raise UsageError(
            "--coordinator, --num_processes and --process_id need each other; give all three, "
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
