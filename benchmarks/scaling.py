"""Time and memory of a training step against the number of virtual CPU devices.

    python benchmarks/scaling.py --out=scaling.json [--config=configs/digits.py:cat_cent]

Each number of devices has a process of its own, for both back ends; the global batch is the same.
The memory is what XLA plans for each device: arguments, results and temporary arrays. Virtual
devices share the cores, so the times say what spreading a step costs, not what it gains.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from importlib import metadata
from typing import Any

import timing

MEMORY = ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes")
BACK_ENDS = ("pmap", "shard_map")


def main() -> None:
    """Measures, prints a Markdown table, and writes JSON if asked to."""
    options = parse()
    if options.devices_of_this_process:
        print(json.dumps(measure(options), allow_nan=False))
        return
    found = [in_a_process(options, number) for number in options.devices]
    print("| devices | images each | MB each | " + " | ".join(f"{b}, s" for b in BACK_ENDS) + " |")
    print("|---|---|---|" + "---|" * len(BACK_ENDS))
    for one in found:
        times = " | ".join(f"{statistics.median(one['seconds'][b]):.3f}" for b in BACK_ENDS)
        print(f"| {one['devices']} | {one['images']} | {one['bytes'] / 1e6:.1f} | {times} |")
    names = ("cat_jax", "jax", "jaxlib")
    versions = {name: metadata.version(name) for name in names}
    timing.write(options.out, {"config": options.config, "versions": versions, "measured": found})


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--config", default="configs/digits.py:cat_cent")
    parser.add_argument("--data_dir", default="")
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--batch_size", type=int, default=0, help="0: the config's")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", type=timing.output_file, help="JSON file to write")
    parser.add_argument("--devices_of_this_process", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


def in_a_process(options: argparse.Namespace, number: int) -> dict[str, Any]:
    """What `measure` finds where there are so many devices."""
    virtual = f"--xla_force_host_platform_device_count={number}"
    more = ["--devices_of_this_process", str(number)]
    done = subprocess.run(
        [sys.executable, __file__, *sys.argv[1:], *more],
        env=os.environ | {"XLA_FLAGS": virtual},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each step for each back end, and the bytes of one device."""
    import jax

    seconds, planned = {}, 0
    for back_end in BACK_ENDS:
        config = load(options, back_end)
        experiment, batch, state = parts(config)
        key = jax.random.key(0)
        if back_end == "pmap":
            plan = experiment.step_fn.lower(state, batch, key).compile().memory_analysis()
            planned = sum(getattr(plan, name) for name in MEMORY)
        state, metrics = experiment.step_fn(state, batch, key)
        jax.block_until_ready(metrics)
        seconds[back_end] = []
        for _ in range(options.steps):
            started = time.perf_counter()
            state, metrics = experiment.step_fn(state, batch, key)
            jax.block_until_ready(metrics)
            seconds[back_end].append(time.perf_counter() - started)
    number = options.devices_of_this_process
    images = config.batch_size // number
    return {"devices": number, "images": images, "bytes": planned, "seconds": seconds}


def load(options: argparse.Namespace, back_end: str) -> Any:
    """The resolved config."""
    import importlib.util

    from cat_jax.experiment import settings

    path, _, variant = options.config.partition(":")
    spec = importlib.util.spec_from_file_location("config", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.get_config(*([variant] if variant else []))
    config.parallel, config.data_dir = back_end, options.data_dir
    config.batch_size = options.batch_size or config.batch_size
    return settings.resolve(config)


def parts(config: Any) -> tuple[Any, dict[str, Any], Any]:
    """The experiment, its first batch split over the devices, and its first state."""
    import jax
    import numpy as np

    from cat_jax import data
    from cat_jax.experiment.experiment import build_experiment
    from cat_jax.runtime import processes

    devices = jax.devices()
    dataset = data.load(config.dataset, config.data_dir)
    experiment = build_experiment(config, dataset.spec, devices)
    indices = np.arange(config.batch_size) % len(dataset.train.labels)
    indices = indices.reshape(len(devices), -1)
    batch = {
        "image": dataset.train.images[indices],
        "label": dataset.train.labels[indices],
    }
    return experiment, batch, processes.replicate(experiment.begin(), devices)


if __name__ == "__main__":
    main()
