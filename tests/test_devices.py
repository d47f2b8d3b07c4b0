"""Where a run is computed leaves no trace: devices, processes, back ends, and changing among them.

In float64, within the tolerance that docs/scaling.md states, and with real collectives.
"""

import chex
import float64_runs
import jax
import numpy as np
import pytest
import small_runs

TOLERANCE = dict(rtol=1e-9, atol=1e-12)
BACK_ENDS = ("pmap", "shard_map")


def check(saved, want, **overrides):
    """Each run, by its step and where it was computed, is `want` once one device has ended it."""
    for workdir, place in saved.items():
        kept = small_runs.manifest(workdir)
        assert (kept["step"], kept["meta"]["num_devices"]) == place, workdir
        chex.assert_trees_all_close(float64_runs.run(workdir, 1, **overrides), want, **TOLERANCE)


@pytest.mark.slow
def test_two_processes_of_two_devices_go_on_as_one_device_would(float64, tmp_path):
    """What one device has saved; and process 0 alone can see the folder."""
    few, all_steps = dict(num_steps=2), dict(num_steps=4)
    float64_runs.run(tmp_path / "two", 1, **few)
    float64_runs.together([(tmp_path / "two", None, all_steps)], num_processes=2, num_devices=2)
    one = float64_runs.run(tmp_path / "one", 1, **all_steps)
    check({tmp_path / "two": (4, 4)}, one, **all_steps)


@pytest.mark.slow
def test_twenty_steps_are_the_same_on_eight_devices_and_on_two_processes(float64, tmp_path):
    """Both back ends; and a run that changes from one to the other half way."""
    half, whole = dict(num_steps=10), dict(num_steps=20)
    one = float64_runs.run(tmp_path / "one", 1, **whole)
    on_eight = [(tmp_path / f"8_{p}", None, dict(parallel=p) | whole) for p in BACK_ENDS]
    to_fewer = [tmp_path / f"8_to_{n}" for n in (1, 2, 4)]
    halves = [(workdir, None, half) for workdir in to_fewer]
    rest = [(workdir, n, whole) for workdir, n in zip(to_fewer, (1, 2, 4), strict=True)]
    float64_runs.together([*on_eight, *halves, *rest], num_processes=1, num_devices=8)
    on_two = [(tmp_path / f"2x2_{p}", None, dict(parallel=p) | whole) for p in BACK_ENDS]
    to_one = tmp_path / "2x2_to_1"
    float64_runs.together([*on_two, (to_one, None, half)], num_processes=2, num_devices=2)
    saved = {workdir: (20, n) for workdir, n, _ in rest} | {to_one: (10, 4)}
    for jobs, num_devices in ((on_eight, 8), (on_two, 4)):
        saved |= {workdir: (20, num_devices) for workdir, _, _ in jobs}
    check(saved, one, **whole)


AVERAGED = {
    "average.kind": "equal",
    "average.batch_norm": "recomputed",
    "optimizer.schedule": "cosine",
    "optimizer.warmup_epochs": 1.0,
    "optimizer.decay": "kernels",
    "optimizer.weight_decay": 0.01,
    "validation.every_epochs": 1.0,
    "batch_size": 64,  # So that twelve steps are three epochs.
}
SMALL_CNN = {"classifier.name": "SmallCNN"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "parts",
    [
        AVERAGED,
        SMALL_CNN | {"classifier.activation": "silu"},
        SMALL_CNN | {"classifier.activation": "gelu"},
    ],
    ids=["averaged", "silu", "gelu"],
)
def test_recipe_parts_depend_neither_on_the_devices_nor_on_an_interruption(
    float64, tmp_path, parts
):
    """The parts that tests/test_variants.py leaves out: it takes two steps with one network."""
    few, all_steps = parts | {"num_steps": 7}, parts | {"num_steps": 12}
    one = float64_runs.run(tmp_path / "one", 1, **all_steps)
    float64_runs.run(tmp_path / "stopped", 1, **few)
    chex.assert_trees_all_equal(float64_runs.run(tmp_path / "stopped", 1, **all_steps), one)
    four = float64_runs.run(tmp_path / "four", 4, **all_steps)
    chex.assert_trees_all_close(four, one, **TOLERANCE)
    if parts is AVERAGED:
        both = one.classifier.params, one.average["params"]
        assert min(jax.tree.leaves(jax.tree.map(lambda a, b: np.abs(a - b).max(), *both))) > 0
