"""A run's folder: whose it is, and what is read from and written to its top level."""

import datetime
import json
import pathlib
from typing import Any

from cat_jax import files
from cat_jax.types import UsageError

# What a resumed run may change: it does not touch the steps that are done. Nor does num_epochs,
# but under a schedule that stretches over them all.
FREE = {"data_dir", "parallel", "num_epochs", "num_steps", "evaluation", "test"} | {
    *("log_every", "save_every", "keep_checkpoints")
}
STRETCHING = {"cosine", "cyclic"}


def write_config(workdir: pathlib.Path, config: dict[str, Any]) -> None:
    """Writes config.json, whole."""
    files.write_text(workdir / "config.json", json.dumps(config, indent=1) + "\n")


def replace_lines(file: pathlib.Path, records: list[dict[str, Any]], *names: str) -> None:
    """Adds lines to a file of JSON lines; one that agrees in the fields `names` is replaced."""

    def key(record: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(record[name] for name in names)

    new = {key(record) for record in records}
    old = [record for record in files.read_json_lines(file) if key(record) not in new]
    files.write_json_lines(file, old + records)


def note_command(workdir: pathlib.Path, command: str) -> None:
    """Adds a line to commands.jsonl: what was done in this workdir, and when; repeats once."""
    file = workdir / "commands.jsonl"
    now = datetime.datetime.now(datetime.UTC).isoformat(" ", "seconds")
    replace_lines(file, [{"command": command, "time": now}], "command")


def read_config(workdir: pathlib.Path) -> dict[str, Any] | None:
    """The resolved config that the workdir was made with, or None."""
    try:
        kept: dict[str, Any] = json.loads((workdir / "config.json").read_text())
        return kept
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        raise UsageError(f"{workdir}/config.json is damaged; use another workdir.") from None


def refuse_other(workdir: pathlib.Path, kept: dict[str, Any], config: dict[str, Any]) -> None:
    """Raises UsageError with the differences if the workdir is of another experiment."""
    old, new = _flat(kept), _flat(config)
    schedules = {config[name]["schedule"] for name in ("optimizer", "mask_optimizer")}
    free = FREE - ({"num_epochs"} if schedules & STRETCHING else set())
    differences = [
        f"{path}: {old.get(path)!r} there, {new.get(path)!r} now"
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path) and path.split(".")[0] not in free
    ]
    if differences:
        raise UsageError(
            f"{workdir} is of another config ({'; '.join(differences)}); "
            "use another workdir, or the config it was made with."
        )


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for field, value in config.items():
        path = f"{prefix}{field}"
        flat |= _flat(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat


def claim(workdir: pathlib.Path) -> None:
    """Makes the workdir; raises UsageError unless files can be written in it."""
    try:
        files.write_text(workdir / ".writable", "")
        (workdir / ".writable").unlink()
    except OSError as error:
        raise UsageError(
            f"Cannot write in workdir {workdir} ({error.strerror}); name another: --workdir=..."
        ) from None
