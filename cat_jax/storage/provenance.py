"""Where a number comes from: the commit of the code, and the versions that it ran on."""

import contextlib
import datetime
import pathlib
import subprocess
import sys
from importlib import metadata
from typing import Any


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


def now() -> str:
    """Date and time in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(" ", "seconds")


def measurement(device: str) -> dict[str, Any]:
    """When, on what kind of device and with what code something is measured now."""
    return {"date": now(), "device": device, "git_sha": git_sha(), "versions": versions()}


def versions() -> dict[str, str]:
    """Of what decides the numbers."""
    names = ("cat_jax", "jax", "jaxlib", "flax", "optax", "numpy")
    found = {"python": sys.version.split()[0]}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
