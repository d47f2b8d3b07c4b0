"""How JAX is set up before a device is used: compiled code that is kept, and determinism."""

import gc
import hashlib
import os
import pathlib
import platform

import jax

from cat_jax.errors import UsageError
from cat_jax.storage import files


def start_fast() -> None:
    """Keeps what XLA compiles in the user's cache, and seldom looks for garbage, in this process.

    JAX_COMPILATION_CACHE_DIR names another folder; JAX_ENABLE_COMPILATION_CACHE=false is without.
    """
    # Tracing makes objects by the million that stay; looking at them takes a fifth of its time.
    gc.set_threshold(100_000)
    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str(files.cache_folder() / processor()))


def compute_deterministically() -> None:
    """The same bits from the same run on a GPU, where the fastest kernels may differ by rounding.

    Elsewhere they are the same anyhow. Has to be called before JAX finds its devices.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".strip()


def check_devices() -> None:
    """Finds the devices, which JAX then keeps.

    Raises:
      UsageError: if JAX finds none, or JAX_DISABLE_JIT is set.
    """
    if jax.config.jax_disable_jit:
        raise UsageError(
            "JAX_DISABLE_JIT is set, but training steps and attacks are compiled; unset it. To "
            "look inside a step, use jax.debug.print."
        )
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # The second if no plugin is installed at all.
        reason = str(error).strip().split("\n")[0]
        platforms = os.environ.get("JAX_PLATFORMS", "")
        remedy = (
            f"unset JAX_PLATFORMS, which is {platforms}, or install" if platforms else "install"
        )
        raise UsageError(
            f"JAX finds no device{f' ({reason})' if reason else ''}; {remedy} jax for this "
            "machine: requirements-cuda.txt, requirements-tpu.txt, or requirements.txt for CPUs."
        ) from error


def processor() -> str:
    """The name of a processor's kind: code compiled for one may not run on another."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        kind = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        kind = platform.processor()
    return f"xla-{platform.machine()}-{hashlib.sha256(kind.encode()).hexdigest()[:8]}"
