"""The benchmarks: they run, and our cascade leaves as little as torchattacks' does.

In processes of their own: PyTorch and its attacks warn of much, and warnings are errors here.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest
import small_runs

ROOT = pathlib.Path(__file__).parent.parent
PEER = pytest.mark.skipif(
    importlib.util.find_spec("torchattacks") is None, reason="torchattacks is not installed"
)
ATTACKS = ["PGD-20", "APGD-CE, 10 steps", "APGD-T, 10 steps", "FAB-T, 10 steps"]


def benchmark(name, *arguments):
    """What the script prints and writes."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
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
    assert [*report["seconds"]] == [*ATTACKS, "Square, 10 queries"]
    assert all(f"| {attack} |" in printed for attack in report["seconds"])
    for attack, of_attack in report["seconds"].items():
        has_peer = "torchattacks" in report["versions"]
        assert "cat_jax" in of_attack and ("torchattacks" in of_attack) == has_peer
        assert ("foolbox (JAX)" in of_attack) == (
            attack == "PGD-20" and "foolbox" in report["versions"]
        )
        assert all(len(times) == 1 and times[0] > 0 for times in of_attack.values())


@pytest.mark.slow
@PEER
def test_our_cascade_and_torchattacks_leave_the_same_accuracy(tmp_path):
    workdir = tmp_path / "run"
    flags = {"dataset": "digits", "num_validation": 144, "batch_size": 128, "num_steps": 150}
    flags |= {"attack.num_steps": 10, "evaluation": "none", "save_every": 1000}
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
