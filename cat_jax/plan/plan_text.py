"""Plans as text."""

import functools
from collections.abc import Iterator

import jax
from ml_collections import ConfigDict

from cat_jax import data
from cat_jax.errors import UsageError
from cat_jax.experiment.experiment import Experiment
from cat_jax.plan import fitting, step_plan
from cat_jax.plan.step_plan import Plan, usable_memory
from cat_jax.plan.target import Target
from cat_jax.runtime.terminal import duration


def heading(experiment: Experiment, target: Target) -> str:
    """The run and its target, in one line."""
    config = experiment.config
    return (
        f"{config.variant} on {config.dataset}, {config.classifier.name}, {config.precision}, "
        f"batch {config.batch_size}, on {target.number} x {target.name}"
    )


def describe(plan: Plan, num_steps: int) -> str:
    """The lines of a plan, the first of which says whether it fits."""
    memory = usable_memory(plan.target)
    of = f" of {memory / 1e9:.3g} GB that JAX uses" if plan.target.memory else ""
    verdict = "" if not plan.target.memory else "fits: " if plan.fits else "DOES NOT FIT: "
    lines = [
        f"\n{plan.name}",
        f"  {verdict}peak {plan.peak / 1e9:.3g} GB a device{of}",
        f"  compiled in {duration(plan.compilation)}",
    ]
    if plan.program is None:
        return "\n".join(lines)
    program = plan.program
    flops = ", ".join(f"{n / 1e9:.4g} GFLOP in {t}" for t, n in program.flops.most_common())
    convolutions = ", ".join(f"{n} in {t}" for t, n in program.convolutions.most_common())
    lines += [
        f"  {flops or '0 GFLOP'} a device",
        f"  convolutions: {convolutions or 'none'}",
        f"  {program.traffic / 1e9:.3g} GB of traffic in {program.kernels} kernels",
        f"  {program.num_collectives} collectives of {program.collective_bytes / 1e6:.3g} MB",
    ]
    if seconds := plan.least_seconds:
        parts = ", ".join(f"{name} {1e3 * x:.3g} ms" for name, x in seconds.items())
        lines.append(f"  at least {1e3 * max(seconds.values()):.3g} ms: {parts}")
        total = num_steps * max(seconds.values())
        if plan.name == "training step" and total >= 1:
            lines.append(f"  at least {duration(total)} for {num_steps} steps")
    return "\n".join(lines)


def fit(
    config: ConfigDict, spec: data.Spec, target: Target, devices: list[jax.Device]
) -> Iterator[str]:
    """Lines that say what fits, with and without remat; each takes a few compilations."""
    memory, number = usable_memory(target), target.number

    @functools.cache
    def peak(remat: bool, num_parts: int, batch_size: int) -> float:
        fields = {"batch_size": batch_size, "num_parts": num_parts, "remat": remat}
        experiment = step_plan.experiment_for(config, spec, devices, **fields)
        plan = step_plan.of_step(experiment, spec, target)
        return plan.peak if plan.program else float("inf")

    if memory == float("inf"):
        yield f"\nThe memory of {target.name} is not known, so nothing limits the batch."
        return
    yield "\nwhat fits"
    for remat in (False, True) if _can_recompute(config, spec, devices) else (False,):
        size = fitting.largest_batch(
            functools.partial(peak, remat, 1), memory, config.batch_size, number
        )
        yield f"  remat={remat}: batch {size}" if size else f"  remat={remat}: no batch"
        parts = [2**i for i in range(5) if config.batch_size % (2**i * number) == 0]
        fewest = fitting.fewest_parts(
            functools.partial(peak, remat, batch_size=config.batch_size), memory, parts
        )
        yield f"  remat={remat}, batch {config.batch_size}: num_parts={fewest or 'none'}"


def _can_recompute(config: ConfigDict, spec: data.Spec, devices: list[jax.Device]) -> bool:
    """Whether both networks have blocks that a backward pass can compute again."""
    try:
        step_plan.experiment_for(config, spec, devices, remat=True)
    except UsageError:
        return False
    return True
