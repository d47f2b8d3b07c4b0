"""Paths that a user gives."""

import pathlib
import re

from cat_jax.errors import UsageError

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def local_path(text: str | pathlib.Path, name: str) -> pathlib.Path:
    """The path that a flag or a field gives, with ~ expanded.

    Args:
      text: the path as given.
      name: what the user knows it by, such as "--workdir".

    Raises:
      UsageError: for an address of a remote system, such as gs://bucket/folder.
    """
    if scheme := SCHEME.match(str(text)):
        raise UsageError(
            f"{name} is {text}; expected a path on this machine: cat_jax does not open "
            f"{scheme[1]}:// addresses. Mount that storage, or copy it here."
        )
    try:
        return pathlib.Path(text).expanduser()
    except RuntimeError:  # Because ~NAME names no user.
        raise UsageError(f"{name} is {text}, but there is no such user; name a folder.") from None
