"""python -m benchmarks.step_cost: operations by hand and by XLA, and a small run."""

import json
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_runs
from slow_cases import all_slow_but

from benchmarks.step_cost import __main__ as benchmark
from benchmarks.step_cost import flops, measure, timing
from cat_jax import data, networks
from cat_jax.configs import preact_cifar10
from cat_jax.errors import UsageError
from cat_jax.experiment import settings
from cat_jax.experiment.experiment import build_experiment

NETWORKS = {
    "SmallCNN": (networks.SmallCNN(), (28, 28, 1)),
    "PreActResNet18": (networks.PreActResNet18(), (32, 32, 3)),
    "WideResNet": (networks.WideResNet(depth=10, widen_factor=2), (32, 32, 3)),
    "ResNet18": (networks.ResNet18(), (32, 32, 3)),
    "SmallMask": (networks.SmallMask(), (28, 28, 1)),
    "ResNetMask": (networks.ResNetMask(), (32, 32, 3)),
}


def on_pixels(layer):
    """The share of a layer's products that are with pixels, and not with zeros around an image."""
    if len(layer.kernel) == 2 or layer.inputs[1] < layer.outputs[1]:  # Dense, or upsampled.
        return 1.0
    size, before, after = layer.kernel[0], layer.inputs[1], layer.outputs[1]
    places = np.arange(after)[:, None] * (before // after) + np.arange(size) - size // 2
    return np.mean((places >= 0) & (places < before)) ** 2


@pytest.mark.parametrize("name", all_slow_but(["SmallMask", "ResNetMask"], NETWORKS))
def test_layers_by_hand_have_the_products_that_xla_counts(name):
    """Its count leaves padding out, and has in addition what is done for each value."""
    module, shape = NETWORKS[name]
    image = jax.ShapeDtypeStruct((2, *shape), jnp.float32)
    inputs = (image,) * (2 if name.endswith("Mask") else 1)
    found = flops.layers(module, *inputs)
    by_hand = sum(layer.flops * on_pixels(layer) for layer in found)
    variables = jax.eval_shape(module.init, jax.random.key(0), *inputs)
    traced = jax.jit(module.apply).trace(variables, *inputs)
    lowered = traced.lower(lowering_platforms=("cuda",))  # Convolutions as they are.
    by_xla = lowered.cost_analysis()["flops"]
    values = sum(np.prod(layer.outputs) for layer in found)
    assert by_hand < by_xla < by_hand + 12 * values + 4 * np.prod(image.shape)
    assert by_xla < 1.06 * by_hand


def test_cat_on_preact_resnet18_is_about_270_pflop():
    """140 epochs of 50,000: what the time on a GPU is reckoned from."""
    config = settings.resolve(preact_cifar10.get_config("cat_cw"))
    made = build_experiment(config, data.Spec((32, 32, 3), 10, 50_000), jax.local_devices()[:1])
    work = flops.by_hand(made, (32, 32, 3))
    an_image = sum(sum(one) for one in work.values()) / config.batch_size
    assert 140 * 50_000 * an_image == pytest.approx(270e15, rel=0.02)
    attack = work["attack"]
    assert attack.weight_gradient == 0 and attack.input_gradient == pytest.approx(
        10 / 12 * attack.forward, rel=0.01
    )
    assert work["theta"].weight_gradient == work["theta"].forward > work["theta"].input_gradient


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """(what was printed, the JSON) of a small run."""
    out = tmp_path_factory.mktemp("benchmark") / "out.json"
    argv = ["benchmark", *small_runs.flags("--steps=2", f"--out={out}")]
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the load_module", DeprecationWarning)  # ml_collections.
        patch.setattr(sys, "argv", argv)
        patch.setattr(jax, "local_devices", lambda: jax.devices()[:1])
        patch.setattr(timing, "SIZES", (128,))
        printed = []
        patch.setattr("builtins.print", lambda *words, **_: printed.extend(map(str, words)))
        benchmark.main()
    return "\n".join(printed), json.loads(out.read_text())


@pytest.mark.slow
def test_a_run_measures_each_phase_and_the_whole_and_compiles_once(measured):
    printed, found = measured
    assert found["compilations"] == 1
    assert {len(times) for times in found["seconds"].values()} == {2}
    assert all(seconds > 0 for times in found["seconds"].values() for seconds in times)
    assert [*found["seconds"]] == ["attack", "theta", "phi", "closing", "whole"]
    assert {len(times) for times in found["streams"].values()} == {4}
    for name in (*found["seconds"], "sum", *found["streams"]):
        assert f"\n{name} " in printed, "each has a line"
    start = found["start"]
    parts = sum(v for k, v in start.items() if k not in ("ready", "total", "cache_hits"))
    assert start["ready"] + start["running"] == pytest.approx(start["total"], rel=0.01)
    assert parts == pytest.approx(start["total"], rel=0.01)
    assert found["memory"]["temp"] > 0 and found["matmul"]["flops_per_second"] > 1e8
    assert found["images"] == "as prepared" and found["device"]["count"] == 1


@pytest.mark.slow
def test_a_step_that_jax_keeps_is_measured_too(monkeypatch):
    """As on a GPU, where the first step compiles in its own time."""
    monkeypatch.setattr(jax, "local_devices", lambda: jax.devices()[:1])
    monkeypatch.setattr(timing, "SIZES", (128,))
    found = measure.measure(small_runs.quick_config(), 1, phases=False)
    assert found["compilations"] == 1 and found["memory"]["temp"] > 0
    start = found["start"]
    assert start["compiling"] > 0
    assert start["running"] > 0
    assert start["ready"] + start["running"] == pytest.approx(start["total"], rel=0.01)


@pytest.mark.slow
def test_a_runs_operations_by_xla_are_those_by_hand(measured):
    """Half of the products on images of 8x8 are with padding, and XLA counts all else too."""
    _, found = measured
    ratio = found["flops_by_xla"] / found["summary"]["flops_of_a_step"]
    assert 0.5 < ratio < 1.1
    assert found["summary"]["flops_of_the_run"] == 12 * found["summary"]["flops_of_a_step"]


def test_images_are_random_where_the_data_set_is_not_prepared(tmp_path):
    config = small_runs.config(dataset="mnist", data_dir=str(tmp_path))
    drawn, why = measure.load_or_draw(config)
    assert drawn.spec == data.Spec((28, 28, 1), 10, 60_000) and why.startswith("random: ")
    with pytest.raises(UsageError, match="nope"):
        measure.load_or_draw(small_runs.config(dataset="nope"))


def test_the_command_refuses_what_it_does_not_know(monkeypatch, capsys):
    for argument, said in (("--workdir=x", "workdir"), ("--config=cat_jax:nope", "nope.py")):
        monkeypatch.setattr(sys, "argv", ["benchmark", argument])
        with pytest.raises(SystemExit, match="2"):
            benchmark.main()
        assert said in capsys.readouterr().err
