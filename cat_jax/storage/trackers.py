"""Sends the metrics of a run to Weights & Biases or MLflow, if its config names one of them."""

import importlib
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cat_jax.errors import UsageError
from cat_jax.storage import files

FILE = "tracker.json"  # The tracker's name of the run, so that a resumed run continues it.


class Tracker(NamedTuple):
    """A run of a tracker.

    Attributes:
      log: function of a step and its numbers.
      close: function that ends the run.
    """

    log: Callable[[int, Mapping[str, float]], object]
    close: Callable[[], object]


def start(name: str, workdir: pathlib.Path, config: Mapping[str, Any]) -> Tracker | None:
    """Begins a run of a tracker, or continues the one of an earlier start of this workdir.

    Args:
      name: a key of `TRACKERS`, or "none".
      workdir: folder of the run.
      config: content of config.json.

    Raises:
      UsageError: if the tracker's package is not installed.
    """
    if name == "none":
        return None
    try:
        package = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"config.tracker is {name}, but Python finds no module {error.name}; install it: "
            f"pip install {name}. Or set config.tracker=none."
        ) from error
    file = workdir / FILE
    earlier = json.loads(file.read_text()) if file.exists() else {}
    identity, tracker = TRACKERS[name](package, workdir.name, earlier.get(name), config)
    files.write_text(file, files.json_text(earlier | {name: identity}))
    return tracker


Started = tuple[str, Tracker]  # The tracker's identifier of the run, and the run.


def _wandb(package: Any, title: str, identity: str | None, config: Mapping[str, Any]) -> Started:
    run = package.init(
        project="cat_jax", name=title, id=identity, resume="allow", config=dict(config)
    )
    # Because W&B refuses steps that a restart computes again.
    run.define_metric("*", step_metric="step")
    log = Tracker(lambda step, values: run.log({"step": step, **values}), run.finish)
    return run.id, log


def _mlflow(package: Any, title: str, identity: str | None, config: Mapping[str, Any]) -> Started:
    run = package.start_run(run_id=identity, run_name=title)
    if identity is None:
        package.log_dict(dict(config), "config.json")
    log = Tracker(lambda step, values: package.log_metrics(dict(values), step), package.end_run)
    return run.info.run_id, log


TRACKERS = {"wandb": _wandb, "mlflow": _mlflow}
