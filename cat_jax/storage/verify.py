"""Reads a workdir and reports damaged files; changes nothing, and needs no data.

Checks checkpoints against the SHA-256 sums in their manifests, config.json against its own sum,
each line of the .jsonl files, .npz files against their checksums, and accuracies in results.jsonl
against the flags in evaluation/.
"""

import pathlib
import zipfile
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from cat_jax.errors import UsageError
from cat_jax.storage import checkpoint, lines, lock, manifest, run_folder
from cat_jax.storage.run_folder import RunFolder

INTACT, LEFTOVER, UNCHECKED, DAMAGED = "intact", "leftover", "not checked", "DAMAGED"
NOT_LISTED = {run_folder.CONFIG, lock.LOCK}  # Checked already, and empty.


class Item(NamedTuple):
    """A file or a checkpoint by its path below the workdir, its verdict, and the reason."""

    name: str
    verdict: str
    text: str = ""

    def __str__(self) -> str:
        """One line."""
        return f"{self.name}: {self.verdict}" + (f": {self.text}" if self.text else "")


def verify_all(folder: pathlib.Path) -> dict[pathlib.Path, list[Item]]:
    """`verify` of a workdir, or of every run directly below the folder of a sweep.

    Raises:
      UsageError: if the folder is neither.
    """
    if _is_workdir(folder):
        return {folder: verify(folder)}
    workdirs = [path for path in sorted(folder.glob("*/")) if _is_workdir(path)]
    if not workdirs:
        raise UsageError(
            f"{folder} holds neither config.json nor checkpoints/, and no run is directly below "
            "it; name the workdir of a run, or the folder of a sweep."
        )
    return {workdir: verify(workdir) for workdir in workdirs}


def verify(workdir: pathlib.Path) -> list[Item]:
    """Checks every checkpoint and file of a run."""
    folder = RunFolder(workdir)
    items = [Item(run_folder.CONFIG, *_judge(_check_config, workdir))]
    folders = [path for path in sorted(folder.checkpoints.glob("*/*")) if path.is_dir()]
    items += [Item(_name(path, workdir), *_checkpoint(path)) for path in folders]
    for path in sorted(workdir.rglob("*")):
        if path.is_file() and not {*path.parents} & {*folders} and path.name not in NOT_LISTED:
            items.append(Item(_name(path, workdir), *_file(path)))
    intact = {item.name for item in items if item.verdict == INTACT}
    return [*items, *_compare_results(folder, intact), *_check_last_step(folder, intact)]


def summary(items: list[Item]) -> str:
    """The number of items with each verdict, in one line."""
    verdicts = [item.verdict for item in items]
    order = (INTACT, LEFTOVER, UNCHECKED, DAMAGED)
    return ", ".join(f"{verdicts.count(name)} {name}" for name in order if name in verdicts)


def _is_workdir(folder: pathlib.Path) -> bool:
    run = RunFolder(folder)
    return run.has_config() or run.checkpoints.exists()


def _name(path: pathlib.Path, workdir: pathlib.Path) -> str:
    return path.relative_to(workdir).as_posix()


def _judge(check: Callable[[pathlib.Path], object], path: pathlib.Path) -> tuple[str, str]:
    """The verdict on the file that `check` reads; `check` raises if the file is damaged."""
    try:
        return INTACT, str(check(path) or "")
    except Exception as error:  # A damaged file can raise anything.
        return DAMAGED, " ".join(str(error).split()) or type(error).__name__


def _check_config(workdir: pathlib.Path) -> None:
    if RunFolder(workdir).config() is None:
        raise ValueError("it is missing")


def _checkpoint(folder: pathlib.Path) -> tuple[str, str]:
    if folder.name.startswith(checkpoint.PARTIAL):
        return LEFTOVER, "a process that died left it; the next save removes it"
    if folder.name.startswith(checkpoint.DAMAGED):
        return DAMAGED, "an earlier command renamed it; delete it if another checkpoint is intact"
    if not folder.name.isdigit():
        return UNCHECKED, "cat_jax did not write it"
    problem = manifest.damage(folder)
    return (DAMAGED, problem) if problem else (INTACT, "")


def _file(path: pathlib.Path) -> tuple[str, str]:
    if path.name.startswith(".") and path.suffix == ".tmp":
        return LEFTOVER, "a process that died left it; delete it"
    if path.suffix == ".jsonl" and path.stem in run_folder.LINES:
        return _judge(_check_lines, path)
    if path.suffix == ".npz":
        return _judge(_check_archive, path)
    if path.suffix == ".json" and path.parent.name == run_folder.EVALUATION:
        return _judge(run_folder.check_evaluation_config, path)
    if path.suffix == ".npy":
        return _judge(_check_images, path)
    return UNCHECKED, ""


def _check_lines(path: pathlib.Path) -> str:
    records = RunFolder(path.parent).read_lines(path.stem)
    steps = [line["step"] for line in records] if path.stem == "metrics" else []
    if steps != sorted(steps):
        raise ValueError("its steps are out of order")
    partial_line = path.read_bytes().rpartition(b"\n")[2]
    return "except its last line, half written; the next start drops it" if partial_line else ""


def _check_archive(path: pathlib.Path) -> None:
    with zipfile.ZipFile(path) as archive:
        if changed := archive.testzip():
            raise ValueError(f"{changed} in it has changed")


def _check_images(path: pathlib.Path) -> None:
    """Raises if the file is shorter than its header says; the pixels have no checksum."""
    np.load(path, mmap_mode="r")


def _compare_results(folder: RunFolder, intact: set[str]) -> Iterator[Item]:
    """Accuracies in results.jsonl that differ from the flags in evaluation/."""
    results = folder.lines_file("results").name
    for line in folder.read_lines("results") if results in intact else []:
        stem, expected = lines.record_stem(line), line["outcome"]["accuracy"]
        record = folder.record_file(stem)
        accuracy = _accuracy(record) if _name(record, folder.path) in intact else None
        if accuracy is not None and accuracy != expected:
            text = f"accuracy {expected}, but its flags give {accuracy}; evaluate again"
            yield Item(f"{results}, {stem}", DAMAGED, text)


def _check_last_step(folder: RunFolder, intact: set[str]) -> Iterator[Item]:
    """A last checkpoint whose step has no line in metrics.jsonl."""
    metrics, last = folder.lines_file("metrics").name, folder.checkpoint("last")
    checkpoints = [path for path in last.glob("*") if _name(path, folder.path) in intact]
    if not checkpoints or metrics not in intact:
        return
    step = max(int(path.name) for path in checkpoints)
    if step not in {line["step"] for line in folder.read_lines("metrics")}:
        yield Item(metrics, DAMAGED, f"no line of step {step}, the last checkpoint")


def _accuracy(record: pathlib.Path) -> float | None:
    """The mean of the flags in a record; None if it is not complete."""
    with np.load(record) as archive:
        flags = archive["flags"]
        return float((flags == 1).mean()) if flags.min() >= 0 else None
