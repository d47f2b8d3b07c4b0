"""Paths that a user gives, and errors of the disk that belong to them."""

import errno
import os
import pathlib
import re

from cat_jax.errors import UsageError

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
# Folders in a workdir: none of them is one.
FOLDERS = ("checkpoints", "evaluation", "adversarial", "export", "tensorboard")
# Errors that name no file, since they come from a write to an open one.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.EFBIG)


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


def workdir_path(text: str | pathlib.Path, name: str = "--workdir") -> pathlib.Path:
    """`local_path` of a workdir.

    Raises:
      UsageError: also for a folder inside a run, such as its checkpoints/; it names the run.
    """
    path = local_path(text, name)
    full = path.absolute()
    for parent in () if (path / "config.json").exists() else full.parents:
        inside = full.relative_to(parent).parts[0] in FOLDERS
        if inside and (parent / "config.json").exists():
            run = parent if path.is_absolute() else os.path.relpath(parent)
            raise UsageError(f"{name} is {path}, inside the run {run}; name the run: {name}={run}")
    return path


def is_of_folder(error: OSError, folder: pathlib.Path) -> bool:
    """Whether an error is about a file below `folder`, or is a full or failing disk.

    A font that is missing or a connection that timed out has nothing to do with the folder.
    """
    if error.filename is None:
        return error.errno in DISK_ERRORS
    names = (error.filename, error.filename2)
    paths = [pathlib.Path(str(name)).absolute() for name in names if name is not None]
    return any(path.is_relative_to(folder.absolute()) for path in paths)
