"""Devices that XLA can compile for although this machine does not have them."""

import importlib
import os
from typing import Any

import jax
from jax.experimental import topologies

from cat_jax.errors import UsageError
from cat_jax.plan.target import Target

# Because autotuning needs the device.
GPU_FLAGS = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"


# What all GPUs share, and the versions of CUDA and cuDNN in jax's wheels, as XLA's protocol buffer
# GpuTargetConfigProto.
SHARED = """
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  runtime_version: "12.9.0"
  driver_version: "13.0.0"
  compile_time_toolkit_version: "12.9.0"
  dnn_version: "9.10.0"
"""
CUDNN = "dnn_version_info { major: 9 minor: 10 patch: 0 }"


def prepare_environment() -> None:
    """Sets what jax reads when it starts; call it before the first use of a device."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"  # Because libtpu asks a cloud server for minutes.
    # Because libtpu warns without them. They do not change the plan: the topology decides.
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-8")
    os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # Because several may plan at a time.
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {GPU_FLAGS}".strip()


def devices(target: Target) -> list[jax.Device]:
    """The devices of a target, which compile and hold no arrays; those of a CPU are real.

    Raises:
      UsageError: if the package that compiles for the target is not installed.
    """
    if target.kind == "cpu":
        present = jax.devices("cpu")
        if len(present) < target.number:
            flag = f"XLA_FLAGS=--xla_force_host_platform_device_count={target.number}"
            raise UsageError(
                f"--target is cpu:{target.number}, and there are {len(present)} CPU devices; set "
                f"{flag}."
            )
        return present[: target.number]
    return list(_topology(target).devices)


def _topology(target: Target) -> Any:
    if target.kind == "gpu":
        _import("jax_plugins.xla_cuda12").initialize()
        return topologies.get_topology_desc(
            platform="cuda",
            topology_name=target.topology,
            topology=target.topology,
            target_config=gpu_description(target),
        )
    path = _import("libtpu").get_library_path()
    os.environ.setdefault("TPU_LIBRARY_PATH", path)
    one_host = target.number == 1
    return topologies.get_topology_desc(
        platform="tpu",
        topology_name=f"{target.xla['name']}:{target.topology}",
        chip_config_name=target.xla["core"],
        chips_per_host_bounds=(1, 1, 1) if one_host else (2, 2, 1),
        num_slices=1,
    )


def gpu_description(target: Target) -> str:
    """A GPU as XLA's text of a GpuTargetConfigProto."""
    numbers = {k: v for k, v in target.xla.items() if k not in ("name", "capability")}
    numbers |= {"memory_bandwidth": int(target.bandwidth), "device_memory_size": int(target.memory)}
    lines = "".join(f"  {name}: {value}\n" for name, value in numbers.items())
    major, minor = target.xla["capability"]
    capability = f"  cuda_compute_capability {{ major: {major} minor: {minor} }}\n"
    name = f'  name: "{target.xla["name"]}"\n'
    return (
        f"gpu_device_info {{{SHARED}{lines}{capability}{name}}}\n"
        f'platform_name: "CUDA"\n{CUDNN}\ndevice_description_str: "{target.xla["name"]}"\n'
    )


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"Python finds no module {module}, which compiles for this target; install the extra: "
            'pip install "cat_jax[plan]".'
        ) from error
