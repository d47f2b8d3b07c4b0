"""Checkpoints that are whole or not there: orbax writes the arrays, a manifest vouches for them.

A folder holds one subfolder per step. Its `manifest.json`, written last, has the shape and type
of every array, the SHA-256 of every file and of the manifest itself, and what the caller wants to
remember. While a checkpoint is written or deleted, its name begins with `partial-`.
"""

import contextlib
import errno
import hashlib
import json
import logging
import pathlib
import shutil
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import SingleDeviceSharding

from cat_jax.errors import UsageError
from cat_jax.storage import files
from cat_jax.types import PyTree

logger = logging.getLogger(__name__)
MANIFEST = "manifest.json"
DAMAGED, PARTIAL = "damaged-", "partial-"
FIELDS = {"step", "arrays", "files", "meta"}  # Of a manifest, without its own sum.


class Checkpoint(NamedTuple):
    """A sound checkpoint on disk."""

    path: pathlib.Path
    step: int
    meta: dict[str, Any]
    digest: str


def save(folder: pathlib.Path, state: PyTree, meta: dict[str, Any], *, keep: int) -> pathlib.Path:
    """Writes `state` as folder/step and then deletes all but the `keep` newest.

    Raises:
      OSError: if it cannot be written, such as for a full disk. Older ones are kept.
      ValueError: if a parameter is not finite; nothing is written.
    """
    step = int(state.step)
    path = folder.absolute() / f"{step:08d}"
    host = jax.device_get(state)
    refuse_non_finite(host)
    if path.exists() and damage(path) is None:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    _clear_partial(folder)
    _check_space(folder, host)
    partial = path.with_name(PARTIAL + path.name)
    try:
        with _quiet_writers(), _checkpointer() as checkpointer:
            checkpointer.save(partial, args=ocp.args.StandardSave(host), force=True)
        fields = {"step": step, "arrays": _shapes(host), "files": _sums(partial), "meta": meta}
        manifest = fields | {"sum": _sum(fields)}
        files.write_text(partial / MANIFEST, files.json_text(manifest, indent=1))
        if path.exists():
            _set_aside(path)
        partial.rename(path)
    except OSError:
        raise
    except Exception as error:  # The storage library wraps what the system said.
        raise OSError(errno.EIO, f"cannot write it: {_first_line(error)}", str(path)) from error
    finally:
        _clear_partial(folder)
    for older in _steps(folder)[keep:]:
        shutil.rmtree(older.rename(older.with_name(PARTIAL + older.name)))
    return path


def refuse_non_finite(state: PyTree) -> None:
    """Raises ValueError naming the first array of a state that is not finite."""
    unfit = [name for name, leaf in _named(state) if not np.all(np.isfinite(leaf))]
    if unfit:
        raise ValueError(f"{unfit[0]} is not finite after step {int(state.step)}; not saved.")


def newest(folder: pathlib.Path) -> Checkpoint | None:
    """The newest sound checkpoint, or None if there has been none at all.

    A damaged one is set aside as `damaged-...`, with a warning that says which one is used.

    Raises:
      UsageError: if there are checkpoints but none is sound.
    """
    for path in (every := _steps(folder)):
        problem = damage(path)
        if problem is None:
            manifest = _manifest(path)
            if path != every[0]:
                logger.warning("Going on from the checkpoint of step %d.", manifest["step"])
            digest = hashlib.sha256((path / MANIFEST).read_bytes()).hexdigest()[:12]
            return Checkpoint(path, manifest["step"], manifest["meta"], digest)
        logger.warning("Checkpoint %s is damaged (%s); it is set aside.", path, problem)
        _set_aside(path)
    damaged = sorted(path.name for path in folder.glob(f"{DAMAGED}*"))
    if damaged:
        raise UsageError(
            f"None of the checkpoints in {folder} is sound ({', '.join(damaged)}); restore one "
            "from a copy, delete the folder to go on without it, or start in another workdir."
        )
    return None


def refuse_fewer_steps(folder: pathlib.Path, num_steps: int) -> None:
    """Raises UsageError if a folder has a checkpoint of more steps than a run is to have."""
    for path in _steps(folder)[:1]:
        if (step := int(path.name)) > num_steps:
            raise UsageError(
                f"{folder} has a checkpoint of step {step}, and this config ends at step "
                f"{num_steps}; set config.num_steps or config.num_epochs to at least as many, "
                "evaluate the run with --mode=evaluate, or use another workdir."
            )


def restore(checkpoint: Checkpoint, template: PyTree) -> PyTree:
    """The state in `checkpoint`, on the first device.

    Args:
      checkpoint: what `newest` found.
      template: a state, or its `jax.eval_shape`, that gives the structure.

    Raises:
      UsageError: if the checkpoint is of another network; it names the first difference.
    """
    kept = json.loads((checkpoint.path / MANIFEST).read_text())["arrays"]
    wanted = _shapes(template)
    for name in sorted(kept.keys() | wanted.keys()):
        if kept.get(name) != wanted.get(name):
            raise UsageError(
                f"Checkpoint {checkpoint.path} is of another network: {name} is "
                f"{_say(kept.get(name))} there and {_say(wanted.get(name))} in this config; "
                "use the config it was trained with."
            )
    here = SingleDeviceSharding(jax.local_devices()[0])
    abstract = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=here), template
    )
    with _checkpointer() as checkpointer:
        restored: PyTree = checkpointer.restore(
            checkpoint.path.absolute(), args=ocp.args.StandardRestore(abstract)
        )
    return restored


def restore_arrays(checkpoint: Checkpoint) -> PyTree:
    """The state in `checkpoint` as NumPy arrays in dictionaries, without a template."""
    path = checkpoint.path.absolute()
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        leaves = checkpointer.metadata(path).item_metadata.tree
        as_arrays = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), leaves)
        restored: PyTree = checkpointer.restore(
            path, args=ocp.args.PyTreeRestore(restore_args=as_arrays)
        )
    return restored


def _checkpointer() -> ocp.Checkpointer:
    """Orbax's, told that this process is alone: it would wait for all of them otherwise."""
    this = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(primary_host=this, active_processes={this})
    handler = ocp.StandardCheckpointHandler(multiprocessing_options=alone)
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


def _steps(folder: pathlib.Path) -> list[pathlib.Path]:
    """Subfolders of finished saves, newest first."""
    if not folder.exists():
        return []
    steps = [path for path in folder.iterdir() if path.is_dir() and path.name.isdigit()]
    return sorted(steps, key=lambda path: int(path.name), reverse=True)


def _clear_partial(folder: pathlib.Path) -> None:
    """Removes what a dying process left."""
    for path in folder.glob(f"{PARTIAL}*"):
        shutil.rmtree(path, ignore_errors=True)


def _set_aside(path: pathlib.Path) -> None:
    aside = path.with_name(DAMAGED + path.name)
    shutil.rmtree(aside, ignore_errors=True)
    path.rename(aside)


def _check_space(folder: pathlib.Path, state: PyTree) -> None:
    """Raises OSError before anything is written where `state` would not fit."""
    needed = 1.2 * sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(state)) + 1e6
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            errno.ENOSPC,
            f"no space left for a checkpoint of {needed / 1e6:.0f} MB ({free / 1e6:.0f} MB free)",
            str(folder),
        )


@contextlib.contextmanager
def _quiet_writers() -> Iterator[None]:
    """Drops what orbax's threads say of an event loop that a failed write has closed.

    The failure itself is raised. They may speak late: the hook goes only after a success.
    """
    former = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if "Event loop is closed" not in str(unraisable.exc_value):
            former(unraisable)

    sys.unraisablehook = hook
    yield
    sys.unraisablehook = former


def damage(path: pathlib.Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        manifest = _manifest(path)
    except FileNotFoundError:
        return f"it has no {MANIFEST}, so its writing was not finished"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} cannot be read"
    if f"{manifest['step']:08d}" != path.name:
        return f"it is of step {manifest['step']}"
    found = _sums(path)
    for name, digest in manifest["files"].items():
        if name not in found:
            return f"{name} is missing"
        if found[name] != digest:
            return f"{name} has changed"
    return None


def _manifest(path: pathlib.Path) -> dict[str, Any]:
    """The manifest, without its sum; of before there was one, as it is.

    Raises:
      FileNotFoundError: if there is none. Anything, if it is damaged.
    """
    fields: dict[str, Any] = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    if fields.keys() != FIELDS and fields.pop("sum") != _sum(fields):
        raise ValueError("The manifest has changed.")
    return fields


def _sum(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _sums(path: pathlib.Path) -> dict[str, str]:
    """SHA-256 of every file below `path` but the manifest."""
    found = {}
    for file in sorted(path.rglob("*")):
        if file.is_file() and file.name != MANIFEST:
            with open(file, "rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            found[file.relative_to(path).as_posix()] = digest
    return found


def _named(tree: PyTree) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves]


def _shapes(tree: PyTree) -> dict[str, list[Any]]:
    return {name: [str(leaf.dtype), *leaf.shape] for name, leaf in _named(tree)}


def _say(shape: list[Any] | None) -> str:
    return "absent" if shape is None else f"{shape[0]}{shape[1:]}"


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
