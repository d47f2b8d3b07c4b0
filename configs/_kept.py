"""The config that a run was made with: what `--mode=evaluate --workdir=...` starts from."""

import json
import pathlib

from ml_collections import ConfigDict

from cat_jax.configs import default


def get_config(workdir: str) -> ConfigDict:
    """That of `workdir`/config.json; fields that are newer than it have their defaults."""
    kept = json.loads((pathlib.Path(workdir) / "config.json").read_text(encoding="utf-8"))
    kept.pop("sums", None)  # Of the file, not of the experiment: see workdirs.py.
    config = default.get_config()
    with config.unlocked():
        config.update(kept)
    return config
