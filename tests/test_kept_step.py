"""Steps whose compiled programs are kept: the same results, and none that is not the step's own."""

import concurrent.futures
import contextlib
import logging
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_runs
from jax.experimental.compilation_cache import compilation_cache

from cat_jax import distributed, kept_step
from cat_jax.kept_step import KeptStep
from cat_jax.train_step import PARALLEL, pmap_step
from cat_jax.types import DEVICES

BATCH = {"image": np.arange(4, dtype=np.float32).reshape(2, 2)}  # Of two devices.
KEY = jax.random.key(0)


def descend(rate, name="loss"):
    """A step on numbers [2] that has what a step has: a batch, a key, a mean over devices."""

    def step(state, batch, key):
        noise = jax.random.normal(key, state.shape)
        state = state - jnp.float32(rate) * jax.lax.pmean(batch["image"], DEVICES) + noise
        return state, {name: jax.lax.pmean(jnp.sum(state), DEVICES)}

    return step


@pytest.fixture
def folder(tmp_path):
    """An empty folder for all that is compiled; the one of the tests is put back."""
    before = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    compilation_cache.reset_cache()
    yield tmp_path / "steps"
    jax.config.update("jax_compilation_cache_dir", before)
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()


@pytest.fixture
def keeps_all():
    """JAX keeps also what compiles in no time."""
    before = jax.config.values["jax_persistent_cache_min_compile_time_secs"]
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    yield
    jax.config.update("jax_persistent_cache_min_compile_time_secs", before)


@pytest.fixture
def compiled(monkeypatch):
    """The names of programs that were compiled, in order."""
    names, compile_one = [], KeptStep._compile

    def listed(self, name, lowered):
        names.append(name)
        return compile_one(self, name, lowered)

    monkeypatch.setattr(KeptStep, "_compile", listed)
    return names


def from_zeros(step_fn, devices):
    """What a step makes of zeros, read from the devices."""
    return jax.device_get(step_fn(distributed.replicate(jnp.zeros(2), devices), BATCH, KEY))


def first(step, parallel=pmap_step, experiment="one"):
    """`from_zeros` of a step that has just been started."""
    devices = jax.devices()[:2]
    return from_zeros(KeptStep(parallel(step, devices), experiment, devices), devices)


def expected(step):
    """The same, by JAX alone."""
    devices = jax.devices()[:2]
    return from_zeros(pmap_step(step, devices), devices)


def equal(found, wanted):
    return jax.tree.all(jax.tree.map(np.array_equal, found, wanted))


@pytest.mark.parametrize("parallel", PARALLEL)
def test_a_second_start_compiles_nothing_and_has_the_same_bits(folder, compiled, parallel):
    wanted = expected(descend(0.5))
    for _ in range(3):
        assert equal(first(descend(0.5), PARALLEL[parallel]), wanted)
    assert len(compiled) == 1 and len(list(folder.glob("*.zlib"))) == 1


def test_it_is_read_while_it_is_traced(folder, compiled):
    first(descend(0.5))
    devices, traced = jax.devices()[:2], []

    def step(state, batch, key):
        traced.append(kept._reading.result(timeout=60).name)  # Does not wait for the tracing.
        return descend(0.5)(state, batch, key)

    kept = KeptStep(pmap_step(step, devices), "one", devices)
    kept.prepare(distributed.replicate(jnp.zeros(2), devices), BATCH, KEY)
    assert traced == compiled


def test_a_program_of_the_same_experiment_is_not_used_for_another_step(folder, compiled):
    """Code that has changed, or that someone has put in the place of ours."""
    for step in (descend(0.5), descend(0.25), descend(0.25, "other name"), descend(0.5)):
        found, wanted = first(step), expected(step)
        assert equal(found, wanted) and found[1].keys() == wanted[1].keys()
    assert len(compiled) == 3, "each once"


def test_another_experiment_of_the_same_program_finds_it(folder, compiled):
    first(descend(0.5), experiment="seed 0")
    first(descend(0.5), experiment="seed 1")
    assert len(compiled) == 1 and len(list(folder.glob("last-*.txt"))) == 2


def test_a_program_is_another_under_other_flags_devices_and_versions(folder, compiled, monkeypatch):
    first(descend(0.5))
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=5")
    first(descend(0.5))
    monkeypatch.setattr(kept_step.jaxlib, "__version__", "0.0.1")
    first(descend(0.5))
    monkeypatch.setattr(kept_step.backend, "processor", lambda: "of another kind")
    first(descend(0.5))
    devices = jax.devices()[2:]
    kept = KeptStep(pmap_step(descend(0.5), devices), "one", devices)
    found = kept(distributed.replicate(jnp.zeros(2), devices), BATCH, KEY)
    assert found[0].devices() == set(devices)
    assert len(set(compiled)) == 5


@pytest.mark.parametrize("harm", ["cut", "flipped", "empty", "of something else"])
def test_a_damaged_program_is_said_and_compiled_again(folder, compiled, caplog, harm):
    first(descend(0.5))
    (path,) = folder.glob("*.zlib")
    whole = path.read_bytes()
    flipped = whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 1])
    flipped += whole[len(flipped) :]
    other = kept_step.zlib.compress(kept_step.pickle.dumps((b"no program", 1, 2)))
    path.write_bytes({"cut": whole[:-9], "flipped": flipped, "empty": b""}.get(harm, other))
    with caplog.at_level(logging.WARNING, "cat_jax"):
        assert equal(first(descend(0.5)), expected(descend(0.5)))
    assert f"{path} cannot be used; the step is compiled again" in caplog.text
    caplog.clear()
    first(descend(0.5))
    assert not caplog.text and len(compiled) == 2, "the file is whole again"


def test_a_folder_that_cannot_be_written_costs_the_next_start_alone(folder, caplog):
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file")
    with caplog.at_level(logging.WARNING, "cat_jax"):
        assert equal(first(descend(0.5)), expected(descend(0.5)))
    assert "The compiled step is not kept for the next start" in caplog.text


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_step_that_jax_has_kept_is_kept_again(folder, keeps_all, compiled, in_memory):
    """What XLA has read from JAX's cache it writes without its functions."""
    devices = jax.devices()[:2]
    step_fn = pmap_step(descend(0.5), devices)
    wanted = from_zeros(step_fn, devices)
    assert list(folder.parent.glob("jit__fun-*-cache")), "as pmap calls it"
    jax.clear_caches()
    if in_memory:
        from_zeros(step_fn, devices)
    for _ in range(2):
        for _ in range(2):
            assert equal(from_zeros(KeptStep(step_fn, "one", devices), devices), wanted)
        (program,) = folder.glob("*.zlib")
        program.unlink()
        jax.clear_caches()
    assert len(compiled) == 2


@pytest.mark.parametrize("fails", [False, True])
def test_jax_keeps_what_else_is_compiled(folder, keeps_all, monkeypatch, fails):
    def fail(*_):
        raise RuntimeError("no memory")

    with monkeypatch.context() as patch, contextlib.ExitStack() as stack:
        if fails:
            patch.setattr(jax.stages.Lowered, "compile", fail)
            stack.enter_context(pytest.raises(RuntimeError, match="no memory"))
        first(descend(0.5))
    jax.jit(lambda x: x + 1 if fails else x - 1).lower(1.0).compile()
    assert list(folder.parent.glob("*lambda*-cache"))


def test_a_step_that_calls_back_is_not_kept(folder, compiled):
    told = []

    def step(state, batch, key):
        jax.debug.callback(lambda x: told.append(float(x)), state[0])
        return descend(0.5)(state, batch, key)

    for _ in range(2):
        assert equal(first(step), expected(descend(0.5)))
    jax.effects_barrier()
    assert told == [0.0] * 4 and not compiled, "by two devices, twice"


@pytest.mark.parametrize("where", ["no folder", "cache off", "GPU", "two processes"])
def test_elsewhere_it_is_the_step_function_itself(folder, monkeypatch, where):
    devices = jax.devices()[:2]
    step_fn = pmap_step(descend(0.5), devices)
    if where == "no folder":
        jax.config.update("jax_compilation_cache_dir", None)
    if where == "cache off":
        jax.config.update("jax_enable_compilation_cache", False)
    if where == "GPU":
        devices = [types.SimpleNamespace(platform="gpu", id=0)]
    if where == "two processes":
        monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert KeptStep(step_fn, "one", devices).prepare(None, None, None) is step_fn
    assert not folder.exists()


def test_two_starts_at_once_leave_one_whole_program(folder):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(pool.map(first, [descend(0.5)] * 2))
    assert equal(*found) and not list(folder.glob(".*"))
    assert equal(first(descend(0.5)), found[0])


def test_a_training_step_is_the_same_from_a_kept_program(folder, compiled):
    """Of CAT, on four devices, whose state it takes over from itself."""
    made, dataset, devices = small_runs.experiment(small_runs.config(), num_devices=4)
    split = dataset.train.first(16)
    batch = {
        name: values.reshape(4, 4, *values.shape[1:])
        for name, values in (("image", split.images), ("label", split.labels))
    }
    ends = []
    for _ in range(2):
        kept = KeptStep(made.step_fn, "one", devices)
        state = distributed.replicate(made.begin(), devices)
        for _ in range(2):
            given = state.classifier.params
            state, _ = kept(state, batch, KEY)
            assert all(leaf.is_deleted() for leaf in jax.tree.leaves(given)), "donated"
        ends.append(jax.device_get(state))
    assert equal(*ends) and len(compiled) == 1
