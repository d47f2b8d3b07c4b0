"""A run's folder: the names of its files, whose run it is, and its lock."""

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
from typing import Any

from cat_jax.errors import UsageError
from cat_jax.storage import files, lines, lock, paths

CONFIG = "config.json"
# Its folders, none of which is a run's folder itself.
CHECKPOINTS, EVALUATION, ADVERSARIAL = "checkpoints", "evaluation", "adversarial"
EXPORT, TENSORBOARD = "export", "tensorboard"
FOLDERS = (CHECKPOINTS, EVALUATION, ADVERSARIAL, EXPORT, TENSORBOARD)
# In config.json, beside the resolved fields: those that were given in another way, by their paths,
# and the SHA-256 of the config and of the data.
GIVEN, SUMS = "given", "sums"
# The files of JSON lines, by name without .jsonl, and the fields that each line must have.
LINES: dict[str, set[str]] = {
    "metrics": {"step"},
    "results": {*lines.PARTS},
    "checks": {*lines.PARTS},
    "commands": {"command", "time"},
}


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The folder of a run; other modules ask it for paths, and do not know names of files.

    Attributes:
      path: the folder, which need not exist.
    """

    path: pathlib.Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def config_file(self) -> pathlib.Path:
        """The resolved config and its checksum."""
        return self.path / CONFIG

    @property
    def log_file(self) -> pathlib.Path:
        """The log messages of all starts."""
        return self.path / "log.txt"

    @property
    def report_file(self) -> pathlib.Path:
        """The page of the run."""
        return self.path / "report.html"

    @property
    def masks_file(self) -> pathlib.Path:
        """Masks of some test images."""
        return self.path / "masks.npz"

    @property
    def tensorboard(self) -> pathlib.Path:
        """The folder of TensorBoard's files."""
        return self.path / TENSORBOARD

    @property
    def checkpoints(self) -> pathlib.Path:
        """The folder of the folders best/, last/ and best_average/."""
        return self.path / CHECKPOINTS

    def checkpoint(self, name: str) -> pathlib.Path:
        """The folder of the checkpoints with this name, such as "best"."""
        return self.checkpoints / name

    def lines_file(self, name: str) -> pathlib.Path:
        """The file of JSON lines with this name, a key of `LINES`."""
        return self.path / f"{name}.jsonl"

    def record_file(self, stem: str) -> pathlib.Path:
        """The flags of one attack; `stem` as `lines.record_stem` returns it."""
        return self.path / EVALUATION / f"{stem}.npz"

    def images_file(self, stem: str) -> pathlib.Path:
        """The adversarial images of one attack; `stem` as for `record_file`."""
        return self.path / ADVERSARIAL / f"{stem}.npy"

    def evaluation_config_file(self, fingerprint: str) -> pathlib.Path:
        """The config of an evaluation, which lines and records name by its fingerprint."""
        return self.path / EVALUATION / f"{fingerprint}.json"

    def export_file(self, name: str) -> pathlib.Path:
        """An exported file."""
        return self.path / EXPORT / name

    def has_config(self) -> bool:
        """Whether it has a config.json."""
        return self.config_file.exists()

    def write_config(self, config: dict[str, Any], given_values: dict[str, Any], data: str) -> None:
        """Writes config.json at once.

        Args:
          config: the resolved config.
          given_values: the fields that had another value before the config was resolved, by their
            paths: radii as text, and None where a field follows another one or the conventions.
          data: fingerprint of the data.
        """
        content = config | {GIVEN: given_values}
        content |= {SUMS: {"config": files.json_sum(content), "data": data}}
        files.write_text(self.config_file, files.json_text(content, indent=1))

    def config(self) -> dict[str, Any] | None:
        """The resolved config that the run was created with, or None.

        Raises:
          UsageError: if it is damaged, or lost: checkpoints without it could be of any experiment.
        """
        return self._content()[0]

    def data_fingerprint(self) -> str | None:
        """The fingerprint of the data that the run was created with, or None."""
        return self._content()[1].get("data")

    def refuse_other_data(self, data: str) -> None:
        """Raises UsageError if the run was created with data of another fingerprint than `data`."""
        existing = self.data_fingerprint()
        if existing not in (None, data):
            raise UsageError(
                f"{self} was created with other data: their fingerprint is {existing[:12]} there, "
                f"{data[:12]} now; name the folder of that data: --config.data_dir=..., or use "
                "another workdir."
            )

    def write_evaluation_config(self, fingerprint: str, config: dict[str, Any]) -> None:
        """Writes the config of an evaluation, with its checksum."""
        content = config | {SUMS: {"config": files.json_sum(config)}}
        file = self.evaluation_config_file(fingerprint)
        files.write_text(file, files.json_text(content, indent=1))

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        """The lines of a key of `LINES`; none if the file is absent.

        Raises:
          files.Damaged: naming the first line that lacks a field or is not JSON.
        """
        file = self.lines_file(name)
        records = files.read_json_lines(file)
        for number, record in enumerate(records, 1):
            if not record.keys() >= LINES[name]:
                raise files.damaged_line(file, number)
        return records

    def note_command(self, command: str) -> None:
        """Adds a command line and its time to commands.jsonl, in place of an equal one."""
        file = self.lines_file("commands")
        now = datetime.datetime.now(datetime.UTC).isoformat(" ", "seconds")
        earlier = [line for line in files.read_json_lines(file) if line["command"] != command]
        files.write_json_lines(file, [*earlier, {"command": command, "time": now}])

    def claimed(self) -> contextlib.AbstractContextManager[None]:
        """Creates the folder and keeps other processes out of it; see `lock.claimed`."""
        return lock.claimed(self.path)

    def _content(self) -> tuple[dict[str, Any] | None, dict[str, str]]:
        """The config and its checksums; {} for the latter in a file of an earlier version."""
        try:
            content = json.loads(self.config_file.read_text(encoding="utf-8"))
            sums: dict[str, str] = content.pop(SUMS, {})
            if not sums or sums["config"] == files.json_sum(content):
                content.pop(GIVEN, None)
                return content, sums
        except (FileNotFoundError, NotADirectoryError):
            if self.checkpoints.is_dir():
                raise UsageError(
                    f"{self} holds checkpoints but no {CONFIG}; restore it from a copy, or use "
                    "another workdir."
                ) from None
            return None, {}
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        raise UsageError(
            f"{self.config_file} is damaged; restore it from a copy, or use another workdir."
        )


def named(text: str | pathlib.Path, name: str = "--workdir") -> RunFolder:
    """The run's folder that a user names; `text` and `name` as for `paths.local_path`.

    Raises:
      UsageError: also for a folder inside a run, such as its checkpoints/; it names the run.
    """
    path = paths.local_path(text, name)
    full = path.absolute()
    for parent in () if RunFolder(path).has_config() else full.parents:
        inside = full.relative_to(parent).parts[0] in FOLDERS
        if inside and RunFolder(parent).has_config():
            run = parent if path.is_absolute() else os.path.relpath(parent)
            raise UsageError(f"{name} is {path}, inside the run {run}; name the run: {name}={run}")
    return RunFolder(path)


def check_evaluation_config(file: pathlib.Path) -> None:
    """Raises ValueError or KeyError if a config of an evaluation has changed since."""
    content = json.loads(file.read_text(encoding="utf-8"))
    if content.pop(SUMS)["config"] != files.json_sum(content):
        raise ValueError("its content has changed")
