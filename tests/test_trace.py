"""--profile writes a trace of the steps that it names."""

import jax
import pytest
import small_runs

from cat_jax.errors import UsageError
from cat_jax.storage.run_folder import RunFolder
from cat_jax.training import loop, trace


def test_the_range_is_read_or_refused():
    assert trace.read_steps("100:110") == range(100, 110)
    for text in ("100", "5:5", "7:3", "a:b", "-1:3", ""):
        with pytest.raises(UsageError, match=r"expected START:STOP, such as --profile=100:110"):
            trace.read_steps(text)


def test_a_run_traces_the_steps_and_no_others(tmp_path, monkeypatch):
    """Also if they go beyond the end of the run."""
    experiment, dataset, devices = small_runs.experiment(
        small_runs.quick_config(num_steps=6, num_validation=0)
    )
    calls = []
    steps = []
    small_runs.act_at(monkeypatch, 4, lambda metrics: steps.append(list(calls)))
    monkeypatch.setattr(jax.profiler, "start_trace", calls.append)
    monkeypatch.setattr(jax.profiler, "stop_trace", lambda: calls.append("stop"))
    folder = str(tmp_path / "run" / "profile")
    loop.train(experiment, dataset, RunFolder(tmp_path / "run"), devices, range(1, 3))
    assert steps == [[folder, "stop"]] and calls == [folder, "stop"]
    calls.clear()
    loop.train(experiment, dataset, RunFolder(tmp_path / "run2"), devices, range(5, 90))
    assert len(calls) == 2 and calls[1] == "stop"


@pytest.mark.slow
def test_the_trace_can_be_read(tmp_path):
    experiment, dataset, devices = small_runs.experiment(small_runs.quick_config(num_steps=6))
    loop.train(experiment, dataset, RunFolder(tmp_path), devices, range(2, 4))
    assert [path for path in (tmp_path / "profile").rglob("*.xplane.pb") if path.stat().st_size]
