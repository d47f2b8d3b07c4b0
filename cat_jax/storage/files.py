"""Files that are whole or absent: nothing is ever left half written."""

import contextlib
import json
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

from cat_jax.errors import Damaged, UsageError


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A temporary path beside `path`, which takes its place if the block ends well."""
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
    """Makes a folder, before the work whose results it is for.

    Raises:
      UsageError: if files cannot be written in it; `name` is what the caller knows it by.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"{name} is {folder}, where files cannot be written ({error.strerror}); name another "
            "folder."
        ) from None


def cache_folder() -> pathlib.Path:
    """Where what can be made again is kept: XDG_CACHE_HOME/cat_jax, by default in ~/.cache."""
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(home) / "cat_jax"


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes `path` whole."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json_lines(path: pathlib.Path, records: list[dict[str, Any]]) -> None:
    """Writes one JSON object a line, whole."""
    write_text(path, "".join(json_line(record) for record in records))


def json_line(record: dict[str, Any]) -> str:
    """One JSON object and a newline."""
    return json.dumps(record) + "\n"


def damaged_line(path: pathlib.Path, number: int) -> Damaged:
    """What to raise for a line, counted from 1."""
    return Damaged(
        f"{path} is damaged in line {number}; restore it from a copy, or delete that line."
    )


def read_json_lines(path: pathlib.Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines; none if it is absent.

    A last line that a dying process left half written is dropped.

    Raises:
      Damaged: naming the first line that is none.
    """
    try:
        *whole, rest = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    if rest and not rest.startswith(b"{"):
        raise damaged_line(path, len(whole) + 1)
    return [_object(path, number, line) for number, line in enumerate(whole, 1) if line]


def _object(path: pathlib.Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(line.decode())
        if isinstance(found, dict):
            return found
    except ValueError:
        pass
    raise damaged_line(path, number)
