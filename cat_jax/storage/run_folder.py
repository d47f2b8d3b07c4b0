"""A run's folder: whose it is, and what is read from and written to its top level."""

import contextlib
import datetime
import fcntl
import hashlib
import json
import logging
import os
import pathlib
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cat_jax.errors import UsageError
from cat_jax.storage import files, lines

logger = logging.getLogger(__name__)
# In config.json, beside the resolved fields: those that were given in another way, by their paths,
# and the SHA-256 of the config and of the data.
GIVEN, SUMS = "given", "sums"
# The files of JSON lines, and what each line has to have.
LINES: dict[str, set[str]] = {
    "metrics": {"step"},
    "results": {*lines.PARTS},
    "checks": {*lines.PARTS},
    "commands": {"command", "time"},
}
OLD = {"checkpoint", "step"}  # What results and checks of earlier versions have instead.


def write_config(
    workdir: pathlib.Path, config: dict[str, Any], given_values: dict[str, Any], data: str
) -> None:
    """Writes config.json at once.

    Args:
      workdir: folder of the run.
      config: the resolved config.
      given_values: the fields that had another value before the config was resolved, by their
        paths: radii as text, and None where a field follows another one or the conventions.
      data: fingerprint of the data.
    """
    content = config | {GIVEN: given_values}
    content |= {SUMS: {"config": _sum(content), "data": data}}
    files.write_text(workdir / "config.json", files.json_text(content, indent=1))


def write_evaluation_config(
    workdir: pathlib.Path, fingerprint: str, config: dict[str, Any]
) -> None:
    """Writes evaluation/FINGERPRINT.json, which lines and records of an evaluation name."""
    content = config | {SUMS: {"config": _sum(config)}}
    file = workdir / "evaluation" / f"{fingerprint}.json"
    files.write_text(file, files.json_text(content, indent=1))


def check_evaluation_config(file: pathlib.Path) -> None:
    """Raises ValueError or KeyError if a config of an evaluation has changed since."""
    content = json.loads(file.read_text(encoding="utf-8"))
    if content.pop(SUMS)["config"] != _sum(content):
        raise ValueError("its content has changed")


def read_lines(workdir: pathlib.Path, name: str) -> list[dict[str, Any]]:
    """The lines of a key of `LINES`; none if the file is absent.

    Lines of results and checks that an earlier version wrote are among them.

    Raises:
      files.Damaged: naming the first line that is not what it should be.
    """
    file = workdir / f"{name}.jsonl"
    records = files.read_json_lines(file)
    for number, record in enumerate(records, 1):
        is_old = name in ("results", "checks") and record.keys() >= OLD
        if not (record.keys() >= LINES[name] or is_old):
            raise files.damaged_line(file, number)
    return records


def note_command(workdir: pathlib.Path, command: str) -> None:
    """Adds a line to commands.jsonl: what was done in this workdir, and when; repeats once."""
    file = workdir / "commands.jsonl"
    now = datetime.datetime.now(datetime.UTC).isoformat(" ", "seconds")
    earlier = [line for line in files.read_json_lines(file) if line["command"] != command]
    files.write_json_lines(file, [*earlier, {"command": command, "time": now}])


def read_config(workdir: pathlib.Path) -> dict[str, Any] | None:
    """The resolved config that the workdir was made with, or None.

    Raises:
      UsageError: if it is damaged, or lost: checkpoints without it could be of any experiment.
    """
    return _read(workdir)[0]


def _read(workdir: pathlib.Path) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """The config and the sums; those of before there were any are empty."""
    file = workdir / "config.json"
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        sums: dict[str, str] = kept.pop(SUMS, {})
        if not sums or sums["config"] == _sum(kept):
            kept.pop(GIVEN, None)
            return kept, sums
    except (FileNotFoundError, NotADirectoryError):
        if (workdir / "checkpoints").is_dir():
            raise UsageError(
                f"{workdir} holds checkpoints but no config.json; restore it from a copy, or use "
                "another workdir."
            ) from None
        return None, {}
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise UsageError(f"{file} is damaged; restore it from a copy, or use another workdir.")


def _sum(config: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True, allow_nan=False).encode()).hexdigest()


def refuse_other_data(workdir: pathlib.Path, data: str) -> None:
    """Raises UsageError if the workdir was made with data of another fingerprint than `data`."""
    kept = _read(workdir)[1].get("data", data)
    if kept != data:
        raise UsageError(
            f"{workdir} was made with other data: their fingerprint is {kept[:12]} there, "
            f"{data[:12]} now; name the folder of the former: --config.data_dir=..., or use "
            "another workdir."
        )


@contextlib.contextmanager
def claimed(workdir: pathlib.Path) -> Iterator[None]:
    """Makes the workdir, and keeps other processes out of it while the block runs.

    The lock is the operating system's, on workdir/.lock: it ends with the process, however that
    ends. On file systems without locks there is a warning and no protection.

    Raises:
      UsageError: if files cannot be written in it, or another process holds it.
    """
    with contextlib.ExitStack() as stack:
        try:
            workdir.mkdir(parents=True, exist_ok=True)
            lock = os.open(workdir / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
            stack.callback(os.close, lock)
            _lock(lock, workdir)
            os.ftruncate(lock, 0)
            os.write(lock, f"process {os.getpid()} on {socket.gethostname()}".encode())
            files.write_text(workdir / ".writable", "")
            (workdir / ".writable").unlink()
        except OSError as error:
            raise UsageError(
                f"Cannot write in workdir {workdir} ({error.strerror}); name another: --workdir=..."
            ) from None
        yield


def _lock(lock: int, workdir: pathlib.Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(lock, 300).decode(errors="replace") or "another process"
        raise UsageError(
            f"{workdir} is in use by {holder}; wait until it ends, or use another workdir."
        ) from None
    except OSError as error:
        logger.warning(
            "%s cannot be locked (%s): see to it that no other run uses it.",
            *(workdir, error.strerror),
        )


def first_non_finite(metrics: Sequence[Mapping[str, Any]]) -> str:
    """ "mask_loss is nan at step 300", the first such number of metrics.jsonl; "" without one."""
    for line in metrics:
        for name, value in line.get(files.NON_FINITE, {}).items():
            return f"{name} is {value} at step {line['step']}"
    return ""
