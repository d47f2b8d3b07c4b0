"""Settings of JAX before the first use of a device: cache of compiled code, determinism."""

import gc
import hashlib
import logging
import os
import pathlib
import platform
import warnings

import jax

from cat_jax.errors import UsageError
from cat_jax.storage import files

logger = logging.getLogger(__name__)


def start_fast() -> None:
    """Caches compiled code in the user's cache folder, and makes garbage collection rare.

    JAX_COMPILATION_CACHE_DIR names another folder; JAX_ENABLE_COMPILATION_CACHE=false disables it.
    """
    # Because tracing creates millions of objects that stay; collection took a fifth of its time.
    gc.set_threshold(100_000)
    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str(files.cache_folder() / processor()))
    if jax.config.values["jax_enable_compilation_cache"]:
        _check_cache(jax.config.values["jax_compilation_cache_dir"])


def _check_cache(folder: str) -> None:
    """Warns once of a cache that cannot be written, where JAX warns at each compilation."""
    if "://" in folder:  # A bucket.
        return
    try:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        jax.config.update("jax_enable_compilation_cache", False)
        problem = error.strerror
    else:
        if os.access(folder, os.W_OK):
            return
        warnings.filterwarnings("ignore", "Error writing persistent compilation cache")
        problem = "it cannot be written"
    logger.warning(
        "The cache of compiled code is %s: %s. The run compiles again at each start; "
        "JAX_COMPILATION_CACHE_DIR names another folder.",
        *(folder, problem),
    )


def compute_deterministically() -> None:
    """Makes runs on a GPU bitwise reproducible, where the fastest kernels may round differently.

    Runs on other devices are reproducible by default. Call it before JAX finds its devices.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".strip()


def check_devices() -> None:
    """Lets JAX find its devices, which it keeps.

    Raises:
      UsageError: if JAX finds none, or JAX_DISABLE_JIT is set.
    """
    if jax.config.values["jax_disable_jit"]:
        raise UsageError(
            "JAX_DISABLE_JIT is set, but training steps and attacks are compiled; unset it. To "
            "look inside a step, use jax.debug.print."
        )
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # The second one without any plugin.
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
    """Name of the kind of this processor, because code compiled for one may not run on another."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        kind = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        kind = platform.processor()
    return f"xla-{platform.machine()}-{hashlib.sha256(kind.encode()).hexdigest()[:8]}"
