"""Reads every file of a workdir and says what is sound; changes nothing, and needs no data.

What it holds a file against: checkpoints against the SHA-256 sums in their manifests, config.json
against its own, archives against their CRC, lines against what each has to have, accuracies in
results.jsonl against the flags in evaluation/.
"""

import pathlib
import struct
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from cat_jax.errors import UsageError
from cat_jax.storage import checkpoint, run_folder

SOUND, LEFT, UNKNOWN, WRONG = "sound", "left over", "not checked", "WRONG"


class Item(NamedTuple):
    """A file or a checkpoint, by its path below the workdir, and what it is."""

    name: str
    verdict: str
    text: str = ""

    def __str__(self) -> str:
        """One line."""
        return f"{self.name}: {self.verdict}" + (f": {self.text}" if self.text else "")


def verify(workdir: pathlib.Path) -> list[Item]:
    """All that the workdir holds, and what it lacks.

    Raises:
      UsageError: if it is no workdir of a run.
    """
    if not any((workdir / name).exists() for name in ("config.json", "checkpoints")):
        raise UsageError(f"{workdir} holds neither config.json nor checkpoints/; name a run's.")
    items = [Item("config.json", *_judge(_check_config, workdir))]
    rest = [path for path in sorted(workdir.rglob("*")) if path.is_file()]
    for folder in sorted((workdir / "checkpoints").glob("*/*")):
        if folder.is_dir():
            items.append(_checkpoint(folder, workdir))
            rest = [path for path in rest if folder not in path.parents]
    items += [_file(path, workdir) for path in rest if path != workdir / "config.json"]
    return items + list(_compare(workdir, {item.name for item in items if item.verdict == SOUND}))


def summary(items: list[Item]) -> str:
    """One line: how many there are of each verdict."""
    counts = {v: sum(item.verdict == v for item in items) for v in (SOUND, LEFT, UNKNOWN, WRONG)}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


def _judge(check: Callable[[pathlib.Path], object], path: pathlib.Path) -> tuple[str, str]:
    """The verdict on what `check` reads; it raises if that is damaged."""
    try:
        return SOUND, str(check(path) or "")
    except Exception as error:  # There is no end to what a damaged file can raise.
        return WRONG, " ".join(str(error).split()) or type(error).__name__


def _check_config(workdir: pathlib.Path) -> None:
    if run_folder.read_config(workdir) is None:
        raise ValueError("it is missing")


def _checkpoint(folder: pathlib.Path, workdir: pathlib.Path) -> Item:
    name = folder.relative_to(workdir).as_posix()
    if folder.name.startswith(checkpoint.PARTIAL):
        return Item(name, LEFT, "by a process that died; the next save removes it")
    if folder.name.startswith(checkpoint.DAMAGED):
        return Item(
            name, WRONG, "it was found damaged and set aside; delete it if another is sound"
        )
    if not folder.name.isdigit():
        return Item(name, UNKNOWN, "it is not of this package")
    problem = checkpoint.damage(folder)
    return Item(name, WRONG, problem) if problem else Item(name, SOUND)


def _file(path: pathlib.Path, workdir: pathlib.Path) -> Item:
    name = path.relative_to(workdir).as_posix()
    if path.name.startswith(".") and path.suffix == ".tmp":
        return Item(name, LEFT, "by a process that died; delete it")
    for pattern, check in CHECKS.items():
        if path.relative_to(workdir).match(pattern):
            return Item(name, *_judge(check, path))
    if name.startswith("export/"):
        return Item(name, UNKNOWN, "an export: its model card has its SHA-256")
    return Item(name, UNKNOWN, "it is not of this package")


def _check_lines(path: pathlib.Path) -> str:
    lines = run_folder.read_lines(path.parent, path.stem)
    steps = [line["step"] for line in lines] if path.stem == "metrics" else []
    if steps != sorted(steps):
        raise ValueError("its steps are out of order")
    half = path.read_bytes().rpartition(b"\n")[2]
    return "but for its last line, half written: the next start drops it" if half else ""


def _check_archive(path: pathlib.Path) -> None:
    with zipfile.ZipFile(path) as archive:
        if changed := archive.testzip():
            raise ValueError(f"{changed} in it has changed")


def _check_page(path: pathlib.Path) -> None:
    if not path.read_text(encoding="utf-8").endswith("</html>\n"):
        raise ValueError("its end is missing")


def _check_events(path: pathlib.Path) -> str:
    """The records of a TensorBoard file: length, CRC, content, CRC."""
    content, at = path.read_bytes(), 0
    while at < len(content):
        (length,) = struct.unpack_from("<Q", content + bytes(8), at)
        at += 8 + 4 + length + 4
    return "" if at == len(content) else "but for its last record, cut off"


# What is read how: the first pattern that a file's path ends in. The lock holds nothing to check.
CHECKS: dict[str, Callable[[pathlib.Path], object]] = {
    **{f"{name}.jsonl": _check_lines for name in run_folder.LINES},
    "masks.npz": _check_archive,
    "evaluation/*.npz": _check_archive,
    "adversarial/*.npz": _check_archive,
    "report.html": _check_page,
    "tensorboard/events.*": _check_events,
    ".lock": lambda path: None,
}


def _compare(workdir: pathlib.Path, sound: set[str]) -> Iterator[Item]:
    """Accuracies that are not the mean of their flags; the newest checkpoint and its line."""
    if "results.jsonl" in sound:
        for line in run_folder.read_lines(workdir, "results"):
            found = _accuracy(workdir, line, sound)
            if found is not None and found != line["accuracy"]:
                what = f"results.jsonl, {line['checkpoint']} {line['attack']}"
                said = f"accuracy {line['accuracy']}, its flags say {found}: evaluate again"
                yield Item(what, WRONG, said)
    last = [name for name in sound if name.startswith("checkpoints/last/")]
    step = max((int(name.rpartition("/")[2]) for name in last), default=0)
    lines = run_folder.read_lines(workdir, "metrics") if "metrics.jsonl" in sound else []
    if step and step not in {line["step"] for line in lines}:
        yield Item("metrics.jsonl", WRONG, f"it has no line of step {step}, the last checkpoint's")


def _accuracy(workdir: pathlib.Path, line: dict[str, Any], sound: set[str]) -> float | None:
    """The mean of the flags that a line of results.jsonl is of, if they are there and whole."""
    average = "_average" if line["checkpoint"].endswith("_average") else ""
    of = f"step{line['step']}{average}"
    if "weights" in line:
        of = run_folder.weights_stem(line["weights"]["sha256"])
    stem = f"evaluation/{of}_{line['attack']}"
    for name in (f"{stem}.npz", f"{stem}_{line['num_examples']}.npz"):
        if name in sound:
            with np.load(workdir / name) as kept:
                if len(flags := kept["flags"]) == line["num_examples"]:
                    return float((flags == 1).mean()) if flags.min() >= 0 else None
    return None
