"""Where a number comes from: the commit of the code, and the versions that it ran on."""

import contextlib
import pathlib
import subprocess
import sys
from importlib import metadata


def git_sha() -> str | None:
    """Commit of the checkout that this code is in, with + if it was changed since.

    None where it was installed from a wheel, even into an environment within another checkout.
    """
    file = pathlib.Path(__file__)

    def ask(*words: str) -> str:
        command = ["git", "-C", str(file.parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    with contextlib.suppress(OSError):
        if ask("ls-files", file.name):
            return ask("describe", "--always", "--dirty=+", "--abbrev=12") or None
    return None


def versions() -> dict[str, str]:
    """Of what decides the numbers."""
    names = ("cat_jax", "jax", "jaxlib", "flax", "optax", "numpy")
    found = {"python": sys.version.split()[0]}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
