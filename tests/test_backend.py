"""How JAX is set up: where compiled code is kept, and the flag for the same bits on a GPU."""

import os
import warnings

import jax
import pytest
import small_runs

from cat_jax.errors import UsageError
from cat_jax.runtime import backend


@pytest.fixture
def cache_dir():
    """Reads JAX's cache folder; it is put back afterwards."""
    kept = jax.config.values["jax_compilation_cache_dir"]
    yield lambda: jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", kept)


def test_compiled_code_is_kept_in_the_users_cache_apart_for_each_kind_of_processor(
    cache_dir, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = []
    for kind in ("this one", "another"):
        jax.config.update("jax_compilation_cache_dir", None)
        if kind == "another":
            monkeypatch.setattr(backend.hashlib, "sha256", backend.hashlib.sha1)
        backend.start_fast()
        found.append(cache_dir())
    assert all(folder.startswith(f"{tmp_path}/cat_jax/xla-") for folder in found)
    assert found[0] != found[1]


def test_a_folder_that_the_user_has_named_stays(cache_dir, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    backend.start_fast()
    assert cache_dir() == str(tmp_path)


@pytest.fixture
def cache_on():
    """Puts the switch of JAX's cache back afterwards."""
    before = jax.config.values["jax_enable_compilation_cache"]
    yield
    jax.config.update("jax_enable_compilation_cache", before)


@pytest.mark.usefixtures("cache_on")
def test_a_cache_that_cannot_be_written_is_one_warning(cache_dir, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    folders = {"Not a directory": tmp_path / "file" / "cache", "it cannot be written": tmp_path}
    monkeypatch.setattr(backend.os, "access", lambda path, mode: False)
    for problem, folder in folders.items():
        jax.config.update("jax_enable_compilation_cache", True)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        caplog.clear()
        with warnings.catch_warnings():
            backend.start_fast()
        assert len(caplog.messages) == 1 and f"{folder}: {problem}." in caplog.text
        assert jax.config.values["jax_enable_compilation_cache"] == (folder == tmp_path)
    assert cache_dir() == str(tmp_path)


def test_determinism_is_asked_for_beside_the_flags_that_are_there(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_one=1")
    backend.compute_deterministically()
    assert os.environ["XLA_FLAGS"] == "--xla_one=1 --xla_gpu_deterministic_ops=true"


def test_no_device_and_no_compilation_are_answered_in_one_line(monkeypatch):
    backend.check_devices()
    with jax.disable_jit(), pytest.raises(UsageError, match=r"JAX_DISABLE_JIT is set.*unset it"):
        backend.check_devices()

    def devices():
        raise RuntimeError("Unable to initialize backend 'cuda': no GPU\nmore lines")

    monkeypatch.setattr(jax, "devices", devices)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    with pytest.raises(
        UsageError, match=r"no GPU\); unset JAX_PLATFORMS, which is cuda, or install jax"
    ):
        backend.check_devices()


@pytest.mark.slow
def test_two_runs_that_start_at_once_share_a_cold_cache_and_do_without_a_read_only_one(
    tmp_path, monkeypatch
):
    cache = tmp_path / "cache"
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(cache))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    fields = ("--config.num_steps=2", "--config.evaluation=none")

    def start_both(name):
        workdirs = [tmp_path / f"{name}{i}" for i in range(2)]
        runs = [small_runs.command_line(*fields, f"--workdir={path}") for path in workdirs]
        errors = [run.communicate(timeout=400)[1] for run in runs]
        assert [run.returncode for run in runs] == [0, 0], errors
        return errors, [small_runs.manifest(path)["arrays"] for path in workdirs]

    errors, cold = start_both("cold")
    assert cold[0] == cold[1] and any(cache.iterdir())
    assert not any("cache" in text for text in errors)
    cache.chmod(0o500)
    errors, again = start_both("again")
    assert [*cold, *again] == [cold[0]] * 4
    is_root = os.geteuid() == 0  # Who may write everywhere.
    assert all(text.count("cache of compiled code") == 1 - is_root for text in errors)
