"""The origin of a number: commit of the code, versions, device and date."""

import contextlib
import datetime
import pathlib
import subprocess
import sys
from importlib import metadata
from typing import Any


def git_sha() -> str | None:
    """Commit of the checkout that contains this code, with + if files have changed since.

    None for code from a wheel, even if its environment lies within another checkout.
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
    """Date, device, commit and versions of a measurement that is made now."""
    return {"date": now(), "device": device, "git_sha": git_sha(), "versions": versions()}


def versions() -> dict[str, str]:
    """Versions of the packages that decide the numbers."""
    names = ("cat_jax", "jax", "jaxlib", "flax", "optax", "numpy")
    numbers = {"python": sys.version.split()[0]}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            numbers[name] = metadata.version(name)
    return numbers
