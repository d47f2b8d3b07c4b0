"""Whatever file is damaged, verify names it, and no run resumes from it as if it were intact."""

import logging
import os
import random
import shutil

import numpy as np
import pytest
import small_runs
from slow_cases import slow

from cat_jax import data
from cat_jax.cli import modes, prepared
from cat_jax.errors import UsageError
from cat_jax.evaluation import robustness
from cat_jax.report import page
from cat_jax.storage import checkpoint, verify
from cat_jax.training import loop


def config():
    """Plain training, the quickest to compile."""
    return small_runs.quick_config(num_validation=0)


@pytest.fixture(scope="module")
def made():
    return small_runs.experiment(config())


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A run that is done and evaluated; last/ has the steps 10 and 12."""
    workdir = tmp_path_factory.mktemp("verify") / "run"
    modes.train(config(), workdir, command="python -m cat_jax.main")
    np.savez(workdir / "masks.npz", mask=np.zeros(10))
    return workdir


def truncate(path, rng):
    os.truncate(path, rng.randrange(path.stat().st_size))


def zero(path, rng):
    path.write_bytes(bytes(path.stat().st_size))


def flip(path, rng):
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def remove(path, rng):
    path.unlink()


def names(workdir):
    """What a run reads again: all but the lock, the log, TensorBoard's file and the page."""
    every = (path.relative_to(workdir) for path in workdir.rglob("*") if path.is_file())
    unread = ("tensorboard", "report.html", "log.txt", ".lock")
    return sorted(str(name) for name in every if name.parts[0] not in unread)


def start(workdir, monkeypatch, made):
    """The checkpoint that `modes.train` would resume from; it reads all that it reads otherwise."""
    begun = []
    with monkeypatch.context() as patch:
        patch.setattr(data, "load", lambda *_: made[1])
        patch.setattr(prepared, "build_experiment", lambda *_: made[0])
        patch.setattr(checkpoint, "restore", lambda found, template: begun.append(found))
        patch.setattr(loop._Run, "loop", lambda run, stop: True)
        patch.setattr(robustness, "evaluate", lambda *_: None)
        patch.setattr(page, "write_page", lambda workdir, references: workdir)
        modes.train(config(), workdir)
    return begun[0]


def contents(path):
    """What a file, or all files below a folder, hold: of an archive its arrays."""
    if path.is_dir():
        return {p.relative_to(path): contents(p) for p in path.rglob("*") if p.is_file()}
    if path.suffix != ".npz" or not path.stat().st_size:
        return path.read_bytes()
    with np.load(path) as kept:
        return {name: kept[name].tobytes() for name in kept.files}


def test_all_of_a_run_is_intact_and_nothing_is_touched(workdir):
    before = {path: path.stat().st_mtime_ns for path in workdir.rglob("*")}
    items = verify.verify(workdir)
    named = {item.name for item in items if item.verdict == verify.INTACT}
    others = {item.name.partition("/")[0] for item in items if item.verdict != verify.INTACT}
    assert others == {"report.html", "log.txt", "tensorboard"}
    assert {name for name in named if name.startswith("checkpoints")} == {
        *("checkpoints/best/00000012", "checkpoints/last/00000010", "checkpoints/last/00000012")
    }
    in_checkpoints = {name for name in names(workdir) if name.startswith("checkpoints")}
    assert set(names(workdir)) - in_checkpoints < named
    assert before == {path: path.stat().st_mtime_ns for path in workdir.rglob("*")}


@pytest.mark.parametrize("stride", [9, slow(1)])
def test_a_start_goes_on_from_what_is_sound_or_says_what_is_not(
    stride, workdir, made, tmp_path, monkeypatch, caplog
):
    """Every file, or every ninth, in turn, in each way, at random places: 200 harms and more."""
    rng, seen = random.Random(0), {"went on": 0, "fell back": 0, "refused": 0}
    for name in names(workdir)[::stride]:
        for harm in (truncate, zero, flip, flip, flip, remove):
            case = (name, harm.__name__)
            copy = shutil.copytree(workdir, tmp_path / "copy")
            harm(copy / name, rng)
            wrong = [i.name for i in verify.verify(copy) if i.verdict == verify.DAMAGED]
            if not any(name.startswith(item.partition(",")[0]) for item in wrong):
                # What is absent need not be there; a line may be cut off, or lose its checksum.
                assert (
                    harm is remove
                    or name.endswith(".jsonl")
                    or contents(copy / name) == contents(workdir / name)
                ), case
            caplog.clear()
            try:
                with caplog.at_level(logging.WARNING, "cat_jax"):
                    found = start(copy, monkeypatch, made)
            except UsageError as error:
                assert "\n" not in str(error), case
                seen["refused"] += 1
            else:
                assert contents(found.path) == contents(workdir / found.path.relative_to(copy))
                newest = found.step == 12
                assert newest or "Resuming from the checkpoint of step 10" in caplog.text, case
                seen["went on" if newest else "fell back"] += 1
            shutil.rmtree(copy)
    assert sum(seen.values()) >= 200 / stride and min(seen.values()) > 0, seen
