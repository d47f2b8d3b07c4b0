"""Errors of the disk that are about a run's folder, as one line for its user."""

import contextlib
import errno
import pathlib
from collections.abc import Callable, Iterator

from cat_jax.errors import UsageError
from cat_jax.runtime import processes
from cat_jax.storage.run_folder import RunFolder

# Errors that name no file, because they come from a write to an open one.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.EFBIG)


@contextlib.contextmanager
def explained(folder: RunFolder, remark: Callable[[], str] = str) -> Iterator[None]:
    """Turns an error about the folder into one line; raises all other errors unchanged.

    Args:
      folder: folder of the run, which process 0 alone reads and writes.
      remark: function that returns one more sentence for the user, or "".

    Raises:
      UsageError: for an error about the folder; in other processes, for an error of process 0.
    """
    try:
        yield
    except OSError as error:
        if processes.is_from_first(error):
            raise UsageError(f"Process 0 stopped: {error}.") from error
        if not processes.is_first() or not is_of_folder(error, folder.path):
            raise
        sentences = f"{folder} cannot be written or read: {error}. {remark()}".rstrip()
        raise UsageError(
            f"{sentences} Free disk space or fix its permissions, then run the same command again "
            "to resume."
        ) from error


def is_of_folder(error: OSError, folder: pathlib.Path) -> bool:
    """Whether an error is about a file below `folder`, or is a full or failing disk.

    A font that is missing or a connection that timed out has nothing to do with the folder.
    """
    if error.filename is None:
        return error.errno in DISK_ERRORS
    names = (error.filename, error.filename2)
    paths = [pathlib.Path(str(name)).absolute() for name in names if name is not None]
    return any(path.is_relative_to(folder.absolute()) for path in paths)
