"""Exit statuses of `python -m cat_jax.main` for each kind of error."""

import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Iterator

import jax

from cat_jax.cli.command_line import fail
from cat_jax.errors import Damaged, UsageError
from cat_jax.runtime import processes

logger = logging.getLogger(__name__)
INTERRUPTED = 130  # The status of shells after Ctrl-C.


@contextlib.contextmanager
def set_on_error() -> Iterator[None]:
    """Turns errors of the block into an exit status; users get one line, bugs a traceback."""
    try:
        yield
    except (UsageError, Damaged) as error:
        fail(str(error))
    except BrokenPipeError:  # The reader, such as head, stopped reading.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        logger.warning("Interrupted. Run the same command again to resume from what was saved.")
        if jax.distributed.is_initialized():
            processes.leave(INTERRUPTED)
        sys.exit(INTERRUPTED)
    except Exception as error:
        if not jax.distributed.is_initialized():
            raise
        _leave_the_others(error)


def _leave_the_others(error: Exception) -> None:
    """Ends one of several processes after its own error, or after the loss of another one."""
    if not processes.is_loss(error):
        traceback.print_exc()
        processes.leave(1)
    logger.error(
        "Another process was lost (%s). Start all processes again with the same commands: the run "
        "resumes from its last checkpoint.",
        str(error).split("\n")[0],
    )
    processes.leave(processes.TRY_AGAIN)
