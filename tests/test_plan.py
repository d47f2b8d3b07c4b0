"""cat_jax.plan counts what a compiled step does, and says what fits."""

import collections
import re
import sys

import jax
import jax.numpy as jnp
import pytest
import small_runs
from jax import lax

from cat_jax import data
from cat_jax.errors import UsageError
from cat_jax.plan import __main__, absent_devices, fitting, plan_text, program, step_plan, target

# One GPU's program: a loop of ten with a cuDNN convolution, a fused kernel and an all-reduce.
HLO = """HloModule m, entry_computation_layout={()->f32[]}

%fused (p: bf16[8,4,4,6]) -> bf16[8,4,4,6] {
  %p = bf16[8,4,4,6]{3,2,1,0} parameter(0)
  ROOT %n = bf16[8,4,4,6]{3,2,1,0} negate(%p)
}

%body (arg: (s32[], bf16[8,4,4,3], bf16[3,3,3,6])) -> (s32[], bf16[8,4,4,3], bf16[3,3,3,6]) {
  %arg = (s32[], bf16[8,4,4,3]{3,2,1,0}, bf16[3,3,3,6]{3,2,1,0}) parameter(0)
  %i = s32[] get-tuple-element(%arg), index=0
  %x = bf16[8,4,4,3]{3,2,1,0} get-tuple-element(%arg), index=1
  %w = bf16[3,3,3,6]{3,2,1,0} get-tuple-element(%arg), index=2
  %c = (bf16[8,4,4,6]{3,2,1,0}, u8[0]{0}) custom-call(%x, %w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, custom_call_target="__cudnn$convForward", metadata={op_name="conv"}
  %y = bf16[8,4,4,6]{3,2,1,0} get-tuple-element(%c), index=0
  %f = bf16[8,4,4,6]{3,2,1,0} fusion(%y), kind=kLoop, calls=%fused
  %g = (bf16[3,3,3,6]{3,2,1,0}, u8[0]{0}) custom-call(%x, %f), dim_labels=b01f_01io->b01f, custom_call_target="__cudnn$convBackwardFilter"
  %h = bf16[3,3,3,6]{3,2,1,0} get-tuple-element(%g), index=0
  %r = bf16[3,3,3,6]{3,2,1,0} all-reduce(%h), replica_groups={{0,1}}, to_apply=%add
  ROOT %t = (s32[], bf16[8,4,4,3]{3,2,1,0}, bf16[3,3,3,6]{3,2,1,0}) tuple(%i, %x, %r)
}

%add (a: bf16[], b: bf16[]) -> bf16[] {
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %s = bf16[] add(%a, %b)
}

%cond (arg: (s32[], bf16[8,4,4,3], bf16[3,3,3,6])) -> pred[] {
  %arg = (s32[], bf16[8,4,4,3]{3,2,1,0}, bf16[3,3,3,6]{3,2,1,0}) parameter(0)
  ROOT %k = pred[] constant(true)
}

ENTRY %main (x: bf16[8,4,4,3], w: bf16[3,3,3,6], a: f32[5,7], b: f32[7,2]) -> f32[5,2] {
  %x = bf16[8,4,4,3]{3,2,1,0} parameter(0)
  %w = bf16[3,3,3,6]{3,2,1,0} parameter(1)
  %a = f32[5,7]{1,0} parameter(2)
  %b = f32[7,2]{1,0} parameter(3)
  %z = s32[] constant(0)
  %t0 = (s32[], bf16[8,4,4,3]{3,2,1,0}, bf16[3,3,3,6]{3,2,1,0}) tuple(%z, %x, %w)
  %l = (s32[], bf16[8,4,4,3]{3,2,1,0}, bf16[3,3,3,6]{3,2,1,0}) while(%t0), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"10"}}
  ROOT %d = f32[5,2]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""  # noqa: E501


def test_a_program_is_counted_with_its_loops_and_its_fused_kernels():
    counted = program.read(HLO)
    convolution = 2 * (8 * 4 * 4) * (3 * 3 * 3 * 6)  # The same for the gradient of the kernel.
    assert counted.flops == {"bfloat16": 10 * 2 * convolution, "float32": 2 * 5 * 7 * 2}
    assert counted.convolutions == {"bfloat16": 2}
    image, output, kernel = 2 * 8 * 4 * 4 * 3, 2 * 8 * 4 * 4 * 6, 2 * 3 * 3 * 3 * 6
    loop = (image + kernel + output) + 2 * output + (image + output + kernel)
    assert counted.traffic == 10 * loop + 4 * (5 * 7 + 7 * 2 + 5 * 2)
    assert counted.kernels == 10 * 3 + 1
    assert (counted.num_collectives, counted.collective_bytes) == (10, 10 * kernel)


def test_a_loop_runs_as_often_as_its_condition_says_where_xla_does_not_state_it():
    """As in programs for TPUs."""
    stated = ', backend_config={"known_trip_count":{"n":"10"}}'
    condition = """
  %i = s32[]{:T(128)} get-tuple-element(%arg), index=0
  %k = s32[]{:T(128)} constant(10)
  ROOT %lt = pred[]{:T(512)} compare(%i, %k), direction=LT"""
    text = HLO.replace(stated, "").replace("\n  ROOT %k = pred[] constant(true)", condition)
    assert text.count("known_trip_count") == 0 and text.count("constant(10)") == 1
    assert program.read(text).flops == program.read(HLO).flops


def test_the_operations_of_a_compiled_function_are_those_of_its_shapes():
    def function(x, w):
        return lax.fori_loop(0, 7, lambda i, x: jnp.tanh(x @ w), x).sum()

    shapes = (
        jax.ShapeDtypeStruct((16, 32), jnp.float32),
        jax.ShapeDtypeStruct((32, 32), jnp.float32),
    )
    counted = program.read(jax.jit(function).lower(*shapes).compile().as_text())
    assert counted.flops == {"float32": 7 * 2 * 16 * 32 * 32}
    assert counted.kernels > 7 and counted.traffic > 7 * 4 * 32 * 32


@pytest.mark.parametrize("name", sorted(set(target.names()) - {"cpu"}))
def test_every_target_has_a_source_and_numbers_in_range(name):
    read = target.read(name)
    text = (target.FOLDER / f"{name}.toml").read_text()
    assert re.search(r"https://\S+", text)
    assert read.number == 1 and read.kind in ("gpu", "tpu")
    assert 1e10 < read.memory < 1e12 and 1e11 < read.bandwidth < 1e14
    assert read.flops.keys() == {"float32", "bfloat16"}
    assert 1e13 < read.flops["float32"] <= read.flops["bfloat16"] < 1e16
    if read.kind == "gpu":
        assert f'name: "{read.xla["name"]}"' in absent_devices.gpu_description(read)


@pytest.mark.parametrize("text", ["h101", "h100:0", "h100:x", "h100:", "", "tpu-v5e:3"])
def test_a_target_that_does_not_exist_is_refused(text):
    with pytest.raises(UsageError, match=r"--target is .*(h100, h200|1, 4, 8, 16)"):
        target.read(text)


def test_without_the_extra_one_line_names_it(monkeypatch):
    for module, name in (("jax_plugins.xla_cuda12", "h100"), ("libtpu", "tpu-v5e:8")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(UsageError, match=rf'no module {module}.*pip install "cat_jax\[plan\]"'):
            absent_devices.devices(target.read(name))


def test_the_least_time_is_that_of_the_slowest_resource():
    two = target.Target(
        *("toy", 2, "gpu"), memory=10.0, bandwidth=5.0, link=2.0, flops={"float32": 4.0}
    )
    work = program.Program(collections.Counter(float32=8), traffic=5, collective_bytes=6)
    plan = step_plan.Plan("training step", two, 7.5, 1.0, work)
    assert plan.least_seconds == {"arithmetic": 2.0, "memory": 1.0, "messages": 3.0}
    assert plan.fits and not step_plan.Plan("", two, 7.6, 1.0, work).fits
    text = plan_text.describe(plan, num_steps=100)
    assert "fits: peak" in text and "at least 5 min for 100 steps" in text
    refused = step_plan.Plan("training step", two, 50.0, 1.0, None)
    assert "DOES NOT FIT: peak" in plan_text.describe(refused, 100) and not refused.fits


def test_the_largest_batch_is_found_with_few_compilations():
    tried = []

    def peak(size):
        tried.append(size)
        return 1000 + 10 * size

    size = fitting.largest_batch(peak, memory=20_000, start=128, multiple=8)
    assert size % 8 == 0 and 0.95 * 1900 < size <= 1900 and len(tried) == 3
    assert fitting.largest_batch(peak, memory=1100, start=128, multiple=8) == 8
    assert fitting.largest_batch(peak, memory=900, start=128, multiple=8) is None
    # Memory that grows faster than on a line.
    steep = fitting.largest_batch(lambda n: n**2, memory=10_000, start=32, multiple=4)
    assert 60 <= steep <= 100
    assert fitting.fewest_parts(lambda n: 100 / n, 30, [1, 2, 4, 8]) == 4
    assert fitting.fewest_parts(lambda n: 100 / n, 3, [1, 2, 4, 8]) is None


def planned(config, text):
    """(experiment, spec, target, devices) of a run on CPUs."""
    on = target.read(text)
    devices = absent_devices.devices(on)
    spec = data.load("synthetic").spec
    return step_plan.experiment_for(config, spec, devices), spec, on, devices


def test_a_small_run_is_planned_for_two_cpu_devices():
    config = small_runs.quick_config()
    experiment, *places = planned(config, "cpu:2")
    step = step_plan.of_step(experiment, *places[:2])
    state = jax.eval_shape(experiment.init)
    arrays = jax.tree.leaves((state, state.classifier.params))
    least = sum(array.size * array.dtype.itemsize for array in arrays)
    assert step.peak > least, "the bytes of the state and of the gradients"
    assert step.program.num_collectives > 0 and step.program.flops["float32"] > 0
    text = plan_text.heading(experiment, step.target) + plan_text.describe(step, 12)
    assert "on 2 x cpu" in text and "training step" in text and "collectives of" in text
    assert step_plan.of_evaluation(experiment, *places) is None, "it attacks nothing"
    assert config.parallel == "pmap", "the run itself keeps its config"


@pytest.mark.parametrize("fits, status", [(True, None), (False, 2)])
def test_the_command_ends_with_2_if_a_run_does_not_fit(monkeypatch, fits, status):
    monkeypatch.setattr(__main__, "run", lambda: fits)
    with pytest.raises(SystemExit) as ended:
        sys.exit(__main__.main([]))
    assert ended.value.code == status


@pytest.mark.slow
def test_a_step_of_cat_its_evaluation_and_what_fits(monkeypatch):
    config = small_runs.config(evaluation="pgd20", batch_size=64)
    experiment, *places = planned(config, "cpu:2")
    step, attack = (
        step_plan.of_step(experiment, *places[:2]),
        step_plan.of_evaluation(experiment, *places),
    )
    assert attack.name.startswith("pgd20, ") and attack.peak > 0
    assert attack.program.flops["float32"] > 20 * 2 * attack.program.convolutions["float32"]
    monkeypatch.setattr(plan_text, "usable_memory", lambda target: 0.9 * step.peak)
    lines = list(plan_text.fit(config, *places))
    sizes = [int(size) for size in re.findall(r"batch (\d+)$", "\n".join(lines), re.M)]
    assert sizes and all(2 <= size < 64 and size % 2 == 0 for size in sizes)
    monkeypatch.setattr(plan_text, "usable_memory", lambda target: step.peak)
    assert "  remat=False, batch 64: num_parts=1" in list(plan_text.fit(config, *places))
