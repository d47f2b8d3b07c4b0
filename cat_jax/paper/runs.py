"""Reads the runs in a folder. config.json identifies a run; its name does not."""

import json
import logging
import pathlib

from cat_jax.errors import Damaged, UsageError
from cat_jax.experiment import run_config, settings
from cat_jax.paper.measured import Run
from cat_jax.storage import lines, run_folder
from cat_jax.storage.run_folder import RunFolder

logger = logging.getLogger(__name__)


def find(folder: pathlib.Path) -> list[Run]:
    """Returns every run below a folder in the order of names, and warns of damaged ones."""
    runs = []
    for path in sorted(folder.rglob(run_folder.CONFIG)):
        try:
            runs.append(read(path.parent))
        except (UsageError, Damaged, json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
            logger.warning("%s is left out: %s", path.parent, error)
    return runs


def read(workdir: pathlib.Path) -> Run:
    """Returns the run in a folder.

    Raises:
      UsageError: if config.json is damaged or has an unknown field.
      Damaged: if a file of lines is damaged.
    """
    folder = RunFolder(workdir)
    config = settings.flat(settings.resolve(run_config.read(folder)))
    records = {name: folder.read_lines(name) for name in run_folder.LINES}
    results = records["results"]
    points = [line for line in results if lines.is_curve(line)]
    own = [line for line in results if line["attacked"]["file"] is None]
    is_trained = bool(own or records["metrics"] or not results)
    read = records | {"results": own}
    return Run(workdir, config, **read, points=points, is_trained=is_trained)
