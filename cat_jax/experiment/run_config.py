"""The config that a run was created with, from which `--mode=evaluate --workdir=...` starts."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from cat_jax.configs import default
from cat_jax.errors import UsageError
from cat_jax.experiment import settings
from cat_jax.experiment.fields import FIELDS
from cat_jax.experiment.limits import RADIUS, START, radius_text
from cat_jax.storage import run_folder
from cat_jax.storage.run_folder import RunFolder


def get_config(workdir: str) -> ConfigDict:
    """`read` of a workdir, under the name by which the command line loads a config file."""
    return read(RunFolder(pathlib.Path(workdir)))


def read(folder: RunFolder) -> ConfigDict:
    """The config of a run before it was resolved, so that overrides still take effect.

    Fields that the file lacks, because they are newer, have their defaults.

    Raises:
      UsageError: if the file has a field that the schema does not have.
    """
    file = folder.config_file
    return from_json(json.loads(file.read_text(encoding="utf-8")), str(file))


def from_json(content: dict[str, Any], file: str) -> ConfigDict:
    """`read` of the content of a config.json; `file` is its name in errors."""
    given_values = content.pop(run_folder.GIVEN, {})
    content.pop(run_folder.SUMS, None)
    values = settings.flat(content) | settings.flat(given_values)
    if unknown := sorted(values.keys() - FIELDS.keys()):
        raise UsageError(
            f"{file} has the field {unknown[0]}, which this version of cat_jax does not have; use "
            "the version that wrote the file, or another workdir."
        )
    config = default.get_config()
    config.update_from_flattened_dict(as_given(values))
    return config


def as_given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by their paths, with radii as text, as in the schema."""
    return {
        path: radius_text(value) if isinstance(value, float) and _is_radius(path) else value
        for path, value in values.items()
    }


def _is_radius(path: str) -> bool:
    return FIELDS[path].limit in (RADIUS, START)


def refuse_other(folder: RunFolder, existing: ConfigDict, config: ConfigDict) -> None:
    """Raises UsageError with the differences if a workdir was created with another config.

    Args:
      folder: folder of the run.
      existing: the resolved config that the folder was created with.
      config: the resolved config that it is to be used with now.
    """
    old, new = settings.flat(existing), settings.flat(config)
    differences = [
        f"{path}: {settings.shown(path, old[path])} there, {settings.shown(path, new[path])} now"
        for path, field in FIELDS.items()
        if old[path] != new[path] and not field.may_change(new)
    ]
    tests = "" if old["threat.epsilon"] == new["threat.epsilon"] else ", or set config.test.epsilon"
    if differences:
        raise UsageError(
            f"{folder} was created with a different config ({'; '.join(differences)}); use "
            f"another workdir, or the config that it was created with{tests}."
        )
