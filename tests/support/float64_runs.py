"""Small runs of CAT in float64, where a sum in another order flips no sign of an attack.

As a script, one of several processes, or one with devices of its own:

    python tests/support/float64_runs.py JOBS [COORDINATOR NUM_PROCESSES PROCESS_ID]

JOBS is JSON, [[workdir, number of devices or null for all, {field: value}], ...], run in turn.
"""

import dataclasses
import json
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import small_runs

from cat_jax import data
from cat_jax.experiment import settings
from cat_jax.experiment.experiment import build_experiment
from cat_jax.runtime import cluster, processes
from cat_jax.storage import checkpoint
from cat_jax.storage.run_folder import RunFolder
from cat_jax.training import loop

SHORT = {"attack.num_steps": 3, "num_validation": 0, "save_every": 1000}


def run(workdir, num_devices=None, **overrides):
    """Trains, or goes on; returns the state that is then in last/. Only with 64 bits enabled."""
    config = settings.resolve(small_runs.config(**SHORT | overrides))
    devices = jax.devices()[:num_devices]
    dataset = data.load(config.dataset, config.data_dir)
    images, labels = dataset.train
    dataset = dataset._replace(train=data.Split(images / 255, labels))
    made = build_experiment(config, dataset.spec, devices)

    def init():
        def double(x):
            return x.astype(float) if jnp.issubdtype(x.dtype, jnp.floating) else x

        return jax.tree.map(double, made.init())

    double_made = dataclasses.replace(made, init=init)
    assert loop.train(double_made, dataset, RunFolder(workdir), devices)

    def read():
        found = checkpoint.newest(workdir / "checkpoints" / "last")
        return checkpoint.restore(found, jax.eval_shape(init))

    return processes.from_first(read)


def together(jobs, num_processes, num_devices):
    """Does the jobs in so many processes, each with so many virtual devices."""
    address = [f"localhost:{small_runs.free_port()}", num_processes] if num_processes > 1 else []
    started = [
        start(jobs, num_devices, *address, *([i] if address else [])) for i in range(num_processes)
    ]
    ended = [(process.communicate(timeout=600)[1], process.returncode) for process in started]
    assert all(code == 0 for _, code in ended), ended


def start(jobs, num_devices, *flags):
    """A process that does the jobs."""
    jobs = json.dumps([(str(workdir), *rest) for workdir, *rest in jobs])
    return subprocess.Popen(
        [sys.executable, __file__, jobs, *map(str, flags)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=small_runs.environment(num_devices),
    )


def main():
    jobs, *flags = sys.argv[1:]
    jax.config.update("jax_enable_x64", True)
    if flags:
        cluster.start(flags[0], int(flags[1]), int(flags[2]), None)
    for workdir, num_devices, overrides in json.loads(jobs):
        with processes.outlet(pathlib.Path(workdir)) as folder:
            run(folder, num_devices, **overrides)


if __name__ == "__main__":
    main()
