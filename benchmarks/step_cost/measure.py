"""All measurements of one experiment, as one JSON document."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from benchmarks.step_cost import flops, startup, timing
from cat_jax import data
from cat_jax.errors import UsageError
from cat_jax.experiment import settings
from cat_jax.experiment.experiment import build_experiment
from cat_jax.runtime import processes
from cat_jax.runtime.registry import find
from cat_jax.storage import provenance

MEMORY = ("argument", "output", "alias", "temp", "generated_code")


def measure(config: ConfigDict, num_steps: int, phases: bool = True) -> dict[str, Any]:
    """Everything that `python -m benchmarks.step_cost` tells, times in seconds.

    Args:
      config: unresolved.
      num_steps: how often each part of a step is timed, and of how many steps a block is.
      phases: whether the parts of a step are timed, or whole steps alone.

    Raises:
      UsageError: for a config that cannot be meant.
    """
    clock = [startup.since_start()]
    listening = startup.Compilations()
    resolved = settings.resolve(config)
    devices = jax.local_devices()
    dataset, drawn = load_or_draw(resolved)
    clock.append(startup.since_start())
    experiment = build_experiment(resolved, dataset.spec, devices)
    step_fn = experiment.step_fn
    # Not waited for: the step is traced meanwhile, as in a run.
    state = processes.replicate(experiment.begin(), devices)
    clock.append(startup.since_start())

    split, _ = data.split_validation(dataset.train, resolved.num_validation, resolved.seed)
    sizes = (resolved.seed, resolved.batch_size, len(devices))
    feed = data.Feed(split, *sizes, range(len(devices)), experiment.steps_per_call)
    make_batch = functools.partial(feed, count=feed.steps_per_call)
    trainer = timing.Trainer(step_fn, state, jax.random.key(resolved.seed))
    before = len(listening.events)
    jax.block_until_ready(trainer.step(make_batch(0)))
    clock.append(startup.since_start())
    start = _start(clock, listening.seconds(before)) | {"cache_hits": listening.cache_hits}
    step_name = (listening.lowered(before) or [""])[0]

    epoch_end = -(-len(split.labels) // resolved.batch_size)
    streams = timing.with_and_without_data(
        trainer, make_batch, max(epoch_end - num_steps, 0), num_steps, feed.steps_per_call
    )
    compilations = listening.lowered(before).count(step_name)
    lowered = step_fn.lower(trainer.state, make_batch(0), trainer.key)  # type: ignore[attr-defined]
    memory = _memory(lowered.compile(), devices[0])

    if feed.steps_per_call > 1:
        resolved = resolved.copy_and_resolve_references()
        with resolved.unlocked():
            resolved.steps_per_dispatch = 1
        experiment = build_experiment(resolved, dataset.spec, devices)
        trainer.step_fn = experiment.step_fn
    one = dataclasses.replace(feed, steps_per_call=1)(0)
    runs = {}
    if phases:
        kept = jax.tree.map(jnp.copy, trainer.state)  # A step donates its own.
        runs = timing.phase_runs(experiment, devices, kept, one, trainer.key)
    runs["whole"] = lambda: (trainer.step(one), trainer.state)
    seconds = timing.interleaved(runs, num_steps)
    hand = flops.by_hand(experiment, dataset.spec.image_shape)
    arguments = (trainer.state, one, trainer.key)
    return {
        "dataset": resolved.dataset,
        "variant": resolved.variant,
        "images": drawn or "as prepared",
        "batch_size": resolved.batch_size,
        "steps": num_steps,
        "run_steps": experiment.num_steps,
        "device": _device(devices),
        "versions": provenance.versions(),
        "git_sha": provenance.git_sha(),
        "precision": resolved.precision,
        "seconds": seconds,
        "streams": streams,
        "flops_by_hand": {phase: work._asdict() for phase, work in hand.items()},
        "flops_by_xla": flops.by_xla(experiment, dataset.spec, devices, *arguments),
        "matmul": timing.matmul_peak(devices[0], jnp.dtype(resolved.precision)),
        "memory": memory,
        "start": start,
        "compilations": compilations,
    }


def load_or_draw(config: ConfigDict) -> tuple[data.Dataset, str]:
    """The data set of a config; or, not prepared, random images of its size, and why."""
    try:
        return data.load(config.dataset, config.data_dir), ""
    except UsageError as error:
        source = find(data.Source, "config.dataset", config.dataset)
        if (form := source.archives) is None:
            raise
        rng, size, num_classes = np.random.default_rng(0), source.num_train, form.num_classes
        images = rng.integers(256, size=(size, *form.image_shape), dtype=np.uint8)
        train = data.Split(images, rng.integers(num_classes, size=size, dtype=np.int32))
        names = tuple(map(str, range(num_classes)))
        drawn = data.Dataset(config.dataset, names, train, train.first(1000), "")
        return drawn, f"random: {error}"


def _start(clock: list[float], stages: dict[str, float]) -> dict[str, float]:
    """From the start of the process to the first step, what took how long.

    Until it was ready to begin, and in total until it was done.
    """
    imports, loading, building, _ = np.diff(clock, prepend=0.0).tolist()
    parts = {"importing": imports, "loading data": loading, "building": building} | stages
    ready, total = sum(parts.values()), clock[-1]
    return parts | {"ready": ready, "running": total - ready, "total": total}


def _device(devices: list[jax.Device]) -> dict[str, Any]:
    first = devices[0]
    return {"platform": first.platform, "kind": first.device_kind, "count": len(devices)}


def _memory(compiled: Any, device: jax.Device) -> dict[str, int]:
    """Bytes of one device: what XLA plans for a step, and the most that was ever in use."""
    plan = compiled.memory_analysis()
    found = {} if plan is None else {k: getattr(plan, f"{k}_size_in_bytes") for k in MEMORY}
    peak = (device.memory_stats() or {}).get("peak_bytes_in_use")
    return found if peak is None else found | {"peak": peak}
