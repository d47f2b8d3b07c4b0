"""The plan of a training step, or of an attack of the evaluation, on a target."""

import dataclasses
import functools
import logging
import re
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from cat_jax import data
from cat_jax.evaluation.attack_progress import forward_passes
from cat_jax.evaluation.attacked_batch import attack_batch
from cat_jax.experiment import settings
from cat_jax.experiment.experiment import Experiment, build_experiment
from cat_jax.plan import program
from cat_jax.plan.program import Program
from cat_jax.plan.target import Target
from cat_jax.step.state import variables_of
from cat_jax.types import DEVICES

logger = logging.getLogger(__name__)
# JAX reserves three quarters of a GPU's memory at its start.
USABLE = {"gpu": 0.75, "tpu": 1.0, "cpu": 1.0}


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a program needs on each device of a target.

    Attributes:
      name: what the program does.
      target: the devices.
      peak: largest number of bytes in use at a time; without the work space of cuDNN.
      compilation: seconds that tracing and compiling took on this machine.
      program: what the program does; None if XLA refused to compile it for lack of memory.
    """

    name: str
    target: Target
    peak: float
    compilation: float
    program: Program | None

    @property
    def fits(self) -> bool:
        """Whether a device has enough memory."""
        return self.program is not None and self.peak <= usable_memory(self.target)

    @property
    def least_seconds(self) -> dict[str, float]:
        """The least time of the arithmetic, the memory and the messages, each alone.

        A ring all-reduce of S bytes over n devices moves 2 (n - 1) / n S through each link. The
        latency of a message does not count.
        """
        target = self.target
        if self.program is None or not target.flops:
            return {}
        flops = sum(n / target.flops[dtype] for dtype, n in self.program.flops.items())
        ring = 2 * (target.number - 1) / target.number
        return {
            "arithmetic": flops,
            "memory": self.program.traffic / target.bandwidth,
            "messages": ring * self.program.collective_bytes / target.link,
        }


def usable_memory(target: Target) -> float:
    """Bytes of a device that JAX uses; infinite if they are not known."""
    return USABLE[target.kind] * target.memory if target.memory else float("inf")


def experiment_for(
    config: ConfigDict, spec: data.Spec, devices: list[jax.Device], **fields: Any
) -> Experiment:
    """The experiment of an unresolved config on devices that may be absent.

    Args:
      config: config of the run.
      spec: image shape, classes and size of its data.
      devices: devices of the target.
      **fields: fields to set, such as batch_size.
    """
    changed = config.copy_and_resolve_references()
    # pmap takes real devices only.
    changed.update(fields | {"parallel": "shard_map", "steps_per_dispatch": 1})
    return build_experiment(settings.resolve(changed), spec, devices)


def of_step(experiment: Experiment, spec: data.Spec, target: Target) -> Plan:
    """The plan of one training step."""
    size = experiment.config.batch_size // target.number
    leading = (target.number, size)
    batch = {
        "image": jax.ShapeDtypeStruct((*leading, *spec.image_shape), jnp.uint8),
        "label": jax.ShapeDtypeStruct(leading, jnp.int32),
    }
    key = jax.eval_shape(lambda: jax.random.key(0))
    arguments = (jax.eval_shape(experiment.init), batch, key)
    return _plan("training step", experiment.step_fn, arguments, target)


def of_evaluation(
    experiment: Experiment, spec: data.Spec, target: Target, devices: list[jax.Device]
) -> Plan | None:
    """The plan of a batch of the attack with the most forward passes; None without attacks."""
    attacks = [named for named in experiment.attacks if named.attack is not None]
    if not attacks:
        return None
    named = max(attacks, key=lambda named: forward_passes(named.conditions))
    mesh = Mesh(np.array(devices), (DEVICES,))
    split, replicated = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((DEVICES,), ()))
    number = -(-experiment.config.test.batch_size // target.number) * target.number
    shapes = [((number, *spec.image_shape), jnp.uint8), ((number,), jnp.int32)]
    images, labels = (jax.ShapeDtypeStruct(*shape, sharding=split) for shape in shapes)
    variables = jax.eval_shape(lambda: variables_of(experiment.init().classifier))
    key = jax.eval_shape(lambda: jax.random.key(0))
    variables, key = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=replicated), (variables, key)
    )
    attack = functools.partial(attack_batch, experiment.classifier.apply, named, None)
    compiled = jax.jit(attack, out_shardings=replicated)
    return _plan(
        f"{named.name}, {number} images", compiled, (variables, key, images, labels, labels), target
    )


def _plan(name: str, function: Any, arguments: tuple[Any, ...], target: Target) -> Plan:
    begin = time.monotonic()
    try:
        compiled = function.lower(*arguments).compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        used = re.search(r"Used ([\d.]+)G of", str(error))  # As libtpu has it.
        peak = 2**30 * float(used[1]) if used else float("inf")
        return Plan(name, target, peak, time.monotonic() - begin, None)
    seconds = time.monotonic() - begin
    return Plan(name, target, _peak(compiled), seconds, program.read(compiled.as_text()))


def _peak(compiled: Any) -> float:
    memory = compiled.memory_analysis()
    sizes = memory.argument_size_in_bytes + memory.output_size_in_bytes
    total = sizes + memory.temp_size_in_bytes - memory.alias_size_in_bytes
    peak = getattr(memory, "peak_memory_in_bytes", 0)
    # On the CPU, XLA leaves temporary arrays out of it.
    return float(peak if peak > memory.temp_size_in_bytes else total)
