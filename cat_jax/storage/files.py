"""Files that are complete or absent: a process that dies leaves no half-written file."""

import contextlib
import hashlib
import json
import math
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from cat_jax.errors import Damaged, UsageError

NON_FINITE = "non_finite"  # Field of a JSON object that names the numbers JSON cannot hold.
LINE_SUM = re.compile(r', "sum": "([0-9a-f]{8})"\}$')  # The end of a line that has a checksum.


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A temporary path beside `path`, which replaces it if the block raises no error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(folder: pathlib.Path, name: str) -> None:
    """Checks that files can be written in a folder, or in its nearest parent that exists.

    Args:
      folder: folder of the results, checked before the work.
      name: name of the folder in the error, such as "--out".

    Raises:
      UsageError: if files cannot be written there.
    """
    full = folder.absolute()
    try:
        existing = next(path for path in (full, *full.parents) if path.exists())
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise UsageError(
            f"{name} is {folder}, where files cannot be written ({error.strerror}); name another "
            "folder."
        ) from None


def check_writable_file(path: pathlib.Path, name: str) -> None:
    """`check_writable` of the folder of a file.

    Raises:
      UsageError: also if the file's path is a folder.
    """
    if path.is_dir():
        raise UsageError(f"{name} is {path}, which is a folder; name a file.")
    check_writable(path.parent, name)


def cache_folder() -> pathlib.Path:
    """Folder of files that can be computed again: XDG_CACHE_HOME/cat_jax, default ~/.cache."""
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(home) / "cat_jax"


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes `path`, completely or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json_lines(path: pathlib.Path, records: list[dict[str, Any]]) -> None:
    """Writes one `json_line` for each record, completely or not at all."""
    write_text(path, "".join(json_line(record) for record in records))


def json_line(record: Mapping[str, Any]) -> str:
    """A JSON object with a checksum of its text as the last field, and a newline."""
    text = json_text(record).rstrip()
    return f'{text[:-1]}, "sum": "{_line_sum(text)}"}}\n'


def _line_sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def json_sum(content: Mapping[str, Any]) -> str:
    """SHA-256 of JSON content, whatever the order of its names."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def json_text(record: Mapping[str, Any], *, indent: int | None = None) -> str:
    """A JSON object and a newline; null and a note in place of numbers that are not finite.

    JSON has no NaN, and other programs refuse it. {"loss": nan} is written as
    {"loss": null, "non_finite": {"loss": "nan"}}; a number inside another object or a list is
    named by its path, such as "interval.0".
    """
    non_finite: dict[str, str] = {}
    finite = _finite(record, "", non_finite)
    note = {NON_FINITE: non_finite} if non_finite else {}
    return json.dumps({**finite, **note}, indent=indent, allow_nan=False) + "\n"


def _finite(value: Any, path: str, non_finite: dict[str, str]) -> Any:
    """`value` with None for numbers that are not finite, which are added to `non_finite`."""
    if isinstance(value, float) and not math.isfinite(value):
        non_finite[path] = str(float(value))
        return None
    if isinstance(value, Mapping):
        items = value.items()
        return {k: _finite(v, f"{path}.{k}".lstrip("."), non_finite) for k, v in items}
    if isinstance(value, list | tuple):
        pairs = enumerate(value)
        return [_finite(v, f"{path}.{i}".lstrip("."), non_finite) for i, v in pairs]
    return value


def damaged_line(path: pathlib.Path, number: int) -> Damaged:
    """The error for a damaged line; lines count from 1."""
    return Damaged(
        f"{path} is damaged in line {number}; restore it from a copy, or delete that line."
    )


def read_json_lines(path: pathlib.Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines, without their checksums; none if it is absent.

    It drops a half-written last line, which a process that died leaves. A line that another
    program wrote needs no checksum.

    Raises:
      Damaged: naming the first line that is no JSON object, or does not fit its checksum.
    """
    try:
        *lines, rest = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    if rest and not rest.startswith(b"{"):
        raise damaged_line(path, len(lines) + 1)
    return [_object(path, number, line) for number, line in enumerate(lines, 1) if line]


def _object(path: pathlib.Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        text = line.decode()
        if ends := LINE_SUM.search(text):
            text = f"{text[: ends.start()]}}}"
        record: dict[str, Any] = json.loads(text)
        if isinstance(record, dict) and (not ends or ends[1] == _line_sum(text)):
            return record
    except ValueError:
        pass
    raise damaged_line(path, number)
