"""The benchmarks: they run, and our cascade leaves as little as torchattacks' does.

In processes of their own: PyTorch and its attacks warn of much, and warnings are errors here.
"""

import functools
import importlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import golden
import golden_steps
import jax
import numpy as np
import pytest
import small_runs

from cat_jax import networks
from cat_jax.experiment import settings

ROOT = pathlib.Path(__file__).parent.parent
PEER = pytest.mark.skipif(
    importlib.util.find_spec("torchattacks") is None, reason="torchattacks is not installed"
)
ATTACKS = ["PGD-20", "APGD-CE, 10 steps", "APGD-T, 10 steps", "FAB-T, 10 steps"]
ATTACKS += ["Square, 10 queries", "MI-FGSM, 10 steps", "PGD-20, L2", "APGD-CE, L2, 10 steps"]
ATTACKS += ["FAB-T, L2, 10 steps", "Square, L2, 10 queries"]
MINIMUM_NORM = ("FMN, 10 steps", "DDN, 10 steps")


def benchmark(name, *arguments):
    """What the script prints and writes."""
    paths = [
        str(ROOT),
        str(ROOT / "tests" / "support"),
        *filter(None, [os.environ.get("PYTHONPATH")]),
    ]
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    environment |= {"PYTHONPATH": os.pathsep.join(paths)}
    # Beside other processes, PyTorch's threads would wait for one another.
    environment |= {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    out = next(a for a in arguments if a.startswith("--out=")).removeprefix("--out=")
    return done.stdout, json.loads(pathlib.Path(out).read_text())


@pytest.mark.slow
def test_speeds_are_measured_beside_whatever_is_installed(tmp_path):
    small = ["--network=SmallCNN", "--num_images=2", "--rounds=1"]
    printed, report = benchmark("attacks", *small, f"--out={tmp_path / 'out.json'}")
    assert [*report["seconds"]] == [*ATTACKS, *MINIMUM_NORM]
    assert all(f"| {attack} |" in printed for attack in report["seconds"])
    for attack, of_attack in report["seconds"].items():
        has_peer = "torchattacks" in report["versions"] and attack not in MINIMUM_NORM
        assert "cat_jax" in of_attack and ("torchattacks" in of_attack) == has_peer
        assert ("foolbox (JAX)" in of_attack) == (
            attack in ("PGD-20", "PGD-20, L2", *MINIMUM_NORM) and "foolbox" in report["versions"]
        )
        assert all(len(times) == 1 and times[0] > 0 for times in of_attack.values())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tag", ["mnist_cw", "mnist_cent", "cifar_cw", "cifar_cent"])
def test_the_step_in_pytorch_is_the_published_one(tag, monkeypatch):
    """Its losses against golden, in float64 and from golden's own starts."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    torch_networks, torch_step = map(importlib.import_module, ("torch_networks", "torch_step"))
    meta, arrays = golden.load("cat_step")
    (kind, loss), seeds = tag.split("_"), meta["_meta"]
    hyper, shape = seeds[kind], golden_steps.SHAPES[kind]
    described, twins = golden.load("networks")[0], []
    for ours, theirs in zip(golden_steps.NAMES[kind], golden_steps.GOLDEN_NAMES[kind], strict=True):
        module = getattr(networks, ours)(**golden.normaliser(theirs))
        twin = torch_networks.TWINS[ours](module, (*shape[1:], shape[0])).double()
        state = golden.state_dict(described[theirs]["state_dict"], seed=0)
        twin.load_state_dict({key: torch.tensor(value) for key, value in state.items()})
        twins.append(twin)
    optimizer = functools.partial(torch.optim.Adam, lr=1e-3)
    if kind == "cifar":
        optimizer = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=5e-4)
    recipe = torch_step.Recipe(
        *(hyper["eps"], hyper["alpha"], hyper["iters"]),
        *(hyper["cw_k"] if loss == "cw" else None, kind == "cifar", hyper["beta"], hyper["beta1"]),
    )
    step = torch_step.Step(*twins, optimizer, recipe)
    size = (hyper["steps"], hyper["batch"], *shape)
    for k, x in enumerate(np.random.RandomState(seeds["input_seed"]).uniform(size=size)):
        y = torch.tensor(arrays[f"{tag}/step{k}/labels"]).long()
        found = step(torch.tensor(x), y, torch.tensor(arrays[f"{kind}_cw/step{k}/start"]))
        wanted = [meta[f"{tag}/step{k}"][f"{name}_loss"] for name in ("theta", "phi")]
        np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_the_scaling_benchmark_splits_a_batch_over_all_devices(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    scaling, config = importlib.import_module("scaling"), settings.resolve(small_runs.config())
    _, batch, state = scaling.parts(config)
    number = jax.device_count()
    assert batch["image"].shape[:2] == (number, config.batch_size // number)
    assert state.step == 0


@pytest.mark.slow
@PEER
def test_our_cascade_and_torchattacks_leave_the_same_accuracy(tmp_path):
    workdir = tmp_path / "run"
    flags = {"dataset": "digits", "num_validation": 144, "batch_size": 128, "num_steps": 150}
    flags |= {"attack.num_steps": 10, "evaluation": "none", "save_every": 1000}
    flags |= {"classifier.name": "SmallCNN"}  # Which has a twin in PyTorch.
    trained = small_runs.command_line(
        f"--workdir={workdir}", *(f"--config.{field}={value}" for field, value in flags.items())
    )
    _, errors = trained.communicate()
    assert trained.returncode == 0, errors

    _, report = benchmark("autoattack", f"--workdir={workdir}", f"--out={tmp_path / 'out.json'}")
    num_examples, accuracy = report["num_examples"], report["accuracy"]
    assert num_examples == 360 and report["natural"] > 0.8
    assert 0.1 < accuracy["ours"] < report["natural"] - 0.1, "the attacks must break some, not all"
    allowed = max(0.005 * num_examples, 2)
    assert abs(accuracy["ours"] - accuracy["theirs"]) * num_examples <= allowed + 1e-6
    assert report["stages"]["ours"].keys() == report["stages"]["theirs"].keys()
