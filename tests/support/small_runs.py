"""Runs of tiny networks on synthetic images, a few steps long: to start, to stop and to read."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import jax
import tiny_networks

from cat_jax import data
from cat_jax.configs import digits
from cat_jax.experiment import settings
from cat_jax.experiment.experiment import build_experiment
from cat_jax.storage import files
from cat_jax.storage.metrics import MetricsLog

OVERRIDES = {
    "dataset": "synthetic",
    "num_validation": 32,
    "batch_size": 16,
    "num_steps": 12,
    "optimizer.learning_rate": 0.01,
    "save_every": 5,
    "log_every": 4,
    "attack.num_steps": 2,
    "validation.num_steps": 2,
    "validation.every_epochs": 100,
    "evaluation": "quick",
    "test.num_checked": 0,
}


def config(**overrides):
    """The config of a small run of CAT."""
    return _config("cat_cent", tiny_networks.FIELDS | overrides)


def quick_config(**overrides):
    """The config of plain training, whose step is the quickest to compile."""
    networks = {"classifier.name": tiny_networks.CLASSIFIER}
    return _config("standard", networks | {"evaluation": "natural"} | overrides)


def _config(variant, overrides):
    result = digits.get_config(variant)
    result.update_from_flattened_dict(OVERRIDES | overrides)
    result.plugins = (tiny_networks.__name__,)  # For processes that read the run's folder.
    return result


def experiment(made, num_devices=1):
    """(experiment, data set, devices) of an unresolved config."""
    devices = jax.local_devices()[:num_devices]
    dataset = data.load(made.dataset, made.data_dir)
    return build_experiment(settings.resolve(made), dataset.spec, devices), dataset, devices


def act_at(monkeypatch, wanted, act):
    """Calls `act(metrics of the step)` after step `wanted`; what it returns replaces them."""
    add = MetricsLog.add

    def acting(self, step, metrics, count=1):
        if step == wanted:
            metrics = act(metrics) or metrics
        return add(self, step, metrics, count)

    monkeypatch.setattr(MetricsLog, "add", acting)


TIMES = {"images_per_second", "seconds", "slow_steps", "lost_steps"}


def metrics(workdir):
    """Lines of metrics.jsonl without the times, which no two runs share."""
    lines = files.read_json_lines(workdir / "metrics.jsonl")
    lines = [{k: v for k, v in line.items() if k not in TIMES} for line in lines]
    return [line for line in lines if line.keys() != {"step"}]


def flags(*arguments):
    """The flags of `config()` on a command line, and `arguments` after them."""
    fields = OVERRIDES | tiny_networks.FIELDS
    overrides = (f"--config.{field}={value}" for field, value in fields.items())
    plugin = f"--plugin={tiny_networks.__name__}"
    return ["--config=cat_jax:digits", plugin, *overrides, *arguments]


def environment(num_devices=1, **variables):
    """Variables of a process that finds cat_jax and the modules in tests/support."""
    support = pathlib.Path(__file__).parent
    paths = [str(support), str(support.parents[1]), os.environ.get("PYTHONPATH", "")]
    devices = f"--xla_force_host_platform_device_count={num_devices}"
    flags = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "XLA_FLAGS": devices}
    return os.environ | flags | variables


def command_line(*arguments, prelude=""):
    """`python -m cat_jax.main` with `arguments`, after the Python statements of `prelude`."""
    code = f"{prelude}\nimport runpy\nrunpy.run_module('cat_jax.main', run_name='__main__')"
    program = ["-c", code] if prelude else ["-m", "cat_jax.main"]
    return subprocess.Popen(
        [sys.executable, *program, *flags(*arguments)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )


def two_processes(*arguments, prelude=""):
    """`command_line`, as two processes that train as one; `prelude` is for process 1."""
    joined = (f"--coordinator=localhost:{free_port()}", "--num_processes=2")
    return [
        command_line(*arguments, *joined, f"--process_id={i}", prelude=prelude if i else "")
        for i in range(2)
    ]


def free_port():
    """A port that nothing listens on."""
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        return listening.getsockname()[1]


def manifest(workdir, which="last"):
    """Manifest of the newest checkpoint: names, shapes and hashes of all that was saved."""
    newest = max((workdir / "checkpoints" / which).glob("[0-9]*"))
    return json.loads((newest / "manifest.json").read_text())
