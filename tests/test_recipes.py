"""CONTRIBUTING's recipes, followed: a network and a data set, each in one file and one line."""

import pathlib
import re
import shutil
import subprocess
import sys

import pages
import pytest

NETWORK = '''"""A network for a test."""

from flax import linen as nn

from cat_jax.networks.record import Classifier
from cat_jax.runtime.registry import register
from cat_jax.types import Array


class TinyNet(nn.Module):
    """One linear layer."""

    num_classes: int = 10

    @nn.compact
    def __call__(self, images: Array) -> Array:
        """Images [B, H, W, C] in [0, 1] -> logits [B, K]."""
        return nn.Dense(self.num_classes)(images.reshape(len(images), -1))
'''
DATA = '''"""A data set for a test."""

import numpy as np

from cat_jax.data.source import Source
from cat_jax.data.splits import Loaded, Split
from cat_jax.runtime.registry import register


def load(data_dir: str) -> Loaded:
    """Black images and white ones."""
    del data_dir
    labels = np.arange(40, dtype=np.int32) % 2
    images = np.broadcast_to(255 * labels[:, None, None, None], (40, 4, 4, 1)).astype(np.uint8)
    return ("black", "white"), Split(images, labels), Split(images[:8], labels[:8])
'''
CONTRIBUTING = (pages.ROOT / "CONTRIBUTING.md").read_text()
# In a copy of the package, from configuration to the loaded export.
USE = """
import pathlib
import jax.numpy as jnp
from cat_jax import weights
from cat_jax.cli import modes
from cat_jax.configs import digits
from cat_jax.weights import export, trained
config = digits.get_config("standard")
config.update_from_flattened_dict({
    "dataset": "tiny", "classifier.name": "TinyNet", "num_validation": 0, "num_steps": 20,
    "batch_size": 8, "evaluation": "natural", "test.num_checked": 0,
})
assert modes.train(config, pathlib.Path("run"))
run = trained.load("run")
assert str(weights.describe(run.classifier.network)) == "TinyNet(num_classes=2)"
export.main(["--workdir=run", "--format=safetensors", "--out=w"])
loaded = weights.load("w.safetensors")
assert loaded.logits_fn(jnp.ones((1, 4, 4, 1))).argmax() == 1
assert "TinyNet" in pathlib.Path("run/report.html").read_text()
"""


def recipe(title):
    """The blocks of code of a recipe."""
    section = CONTRIBUTING.split(f"## {title}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```py\n(.*?)```", section, re.S)
    return section, [re.sub("^    ", "", block, flags=re.M) for block in blocks]


@pytest.mark.slow
def test_a_network_and_a_data_set_take_one_file_and_one_line_each(tmp_path):
    package = tmp_path / "cat_jax"
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(pages.ROOT / "cat_jax", package, ignore=ignore)
    for title, source, file in (
        ("Add a network", NETWORK, "networks/tiny_net.py"),
        ("Add a data set", DATA, "data/tiny_images.py"),
    ):
        section, (registration, line) = recipe(title)
        path = pathlib.Path("cat_jax", file)
        assert path.name in section and f"{path.parent}/`" in section
        (package / file).write_text(f"{source}\n\n{registration}")
        init = (package / file).with_name("__init__.py")
        init.write_text(f"{init.read_text()}{line}")
        assert line.count("\n") == 1 and registration.startswith("register(")
    environment = pages.environment() | {"PYTHONPATH": str(tmp_path)}
    environment["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", USE],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
