"""Metrics go to a tracker that the config names, and to no other one."""

import json
import sys
import types

import jax.numpy as jnp
import pytest

from cat_jax.errors import UsageError
from cat_jax.storage import trackers
from cat_jax.storage.metrics import MetricsLog
from cat_jax.storage.run_folder import RunFolder


class FakeWandb(types.ModuleType):
    """Weights & Biases, as far as cat_jax calls it."""

    def __init__(self, calls):
        super().__init__("wandb")
        self.calls = calls

    def init(self, *, project, name, id, resume, config):
        self.calls.append(("init", name, id, resume, config["seed"]))
        return types.SimpleNamespace(
            id=id or "new",
            define_metric=lambda name, step_metric: None,
            log=lambda values: self.calls.append(("log", values)),
            finish=lambda: self.calls.append(("finish",)),
        )


class FakeMlflow(types.ModuleType):
    """MLflow, as far as cat_jax calls it."""

    def __init__(self, calls):
        super().__init__("mlflow")
        self.calls = calls

    def start_run(self, run_id, run_name):
        self.calls.append(("init", run_name, run_id))
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=run_id or "new"))

    def log_dict(self, values, file):
        self.calls.append(("config", values, file))

    def log_metrics(self, values, step):
        self.calls.append(("log", {"step": step, **values}))

    def end_run(self):
        self.calls.append(("finish",))


@pytest.fixture
def fake(monkeypatch):
    """Both packages are there; the calls to each."""
    calls = {"wandb": [], "mlflow": []}
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb(calls["wandb"]))
    monkeypatch.setitem(sys.modules, "mlflow", FakeMlflow(calls["mlflow"]))
    return calls


def log_a_step(workdir, name, step):
    tracker = trackers.start(name, workdir, {"seed": 3})
    log = MetricsLog(RunFolder(workdir), step - 1, tracker)
    log.add(step, {"classifier_loss": jnp.float32(0.5)})
    log.flush(1, seconds={"stepping": 1.0})
    log.close()


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_tracker_gets_the_numbers_and_a_resumed_run_continues_it(fake, tmp_path, name):
    for step in (1, 2):
        log_a_step(tmp_path, name, step)
    begins = [call for call in fake[name] if call[0] == "init"]
    assert [call[:3] for call in begins] == [
        ("init", tmp_path.name, None),
        ("init", tmp_path.name, "new"),
    ]
    logged = [values for kind, *values in fake[name] if kind == "log"]
    assert [values["step"] for (values,) in logged] == [1, 2]
    assert all(values["classifier_loss"] == 0.5 for (values,) in logged)
    assert all("seconds" not in values for (values,) in logged), "numbers alone"
    assert fake[name][-1] == ("finish",)
    assert json.loads((tmp_path / trackers.FILE).read_text()) == {name: "new"}
    others = [calls for other, calls in fake.items() if other != name]
    assert others == [[]], "the other one is not used"


def test_without_a_name_no_tracker_is_imported(fake, tmp_path):
    log_a_step(tmp_path, "none", 1)
    assert fake == {"wandb": [], "mlflow": []} and not (tmp_path / trackers.FILE).exists()


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_tracker_that_is_not_installed_is_refused(monkeypatch, tmp_path, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=f"config.tracker is {name}.* pip install {name}"):
        trackers.start(name, tmp_path, {})
