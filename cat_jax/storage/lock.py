"""A lock on a folder, which ends with the process that holds it."""

import contextlib
import fcntl
import logging
import os
import pathlib
import socket
from collections.abc import Iterator

from cat_jax.errors import UsageError
from cat_jax.storage import files

logger = logging.getLogger(__name__)
LOCK = ".lock"


@contextlib.contextmanager
def claimed(folder: pathlib.Path) -> Iterator[None]:
    """Creates a folder, and keeps other processes out of it while the block runs.

    The operating system holds the lock, on folder/.lock, until the process ends. On file systems
    without locks there is a warning and no protection.

    Raises:
      UsageError: if the folder cannot be written, or another process holds the lock.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
            stack.callback(os.close, descriptor)
            _lock(descriptor, folder)
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
            files.write_text(folder / ".writable", "")
            (folder / ".writable").unlink()
        except OSError as error:
            raise UsageError(
                f"Cannot write in workdir {folder} ({error.strerror}); name another: --workdir=..."
            ) from None
        yield


def _lock(descriptor: int, folder: pathlib.Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 300).decode(errors="replace") or "another process"
        raise UsageError(
            f"{folder} is in use by {holder}; wait until it ends, or use another workdir."
        ) from None
    except OSError as error:
        logger.warning(
            "%s cannot be locked (%s): make sure that no other run uses it.",
            *(folder, error.strerror),
        )
