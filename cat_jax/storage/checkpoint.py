"""Checkpoints that are complete or absent: orbax writes the arrays, a manifest lists them.

A folder holds one subfolder per step. Its `manifest.json`, written last, holds the shape and type
of every array, the SHA-256 of every file and of the manifest itself, and the metadata of the
caller. While a checkpoint is written or deleted, its name begins with `partial-`.
"""

import contextlib
import errno
import logging
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import SingleDeviceSharding

from cat_jax.errors import UsageError
from cat_jax.storage import manifest
from cat_jax.types import PyTree

logger = logging.getLogger(__name__)
DAMAGED, PARTIAL = "damaged-", "partial-"


class Checkpoint(NamedTuple):
    """An intact checkpoint on disk.

    Attributes:
      path: its folder.
      step: number of updates made.
      meta: metadata of the caller.
      digest: first twelve hexadecimal digits of the SHA-256 of its manifest.
    """

    path: pathlib.Path
    step: int
    meta: dict[str, Any]
    digest: str


def save(folder: pathlib.Path, state: PyTree, meta: dict[str, Any], *, keep: int) -> pathlib.Path:
    """Writes `state` as folder/step and then deletes all others but the `keep` - 1 newest.

    An intact checkpoint of this step with the same arrays and the same score in `meta` stays.
    Another one is replaced: it comes from an earlier training in this folder.

    Raises:
      OSError: if it cannot be written, for example because the disk is full. Older ones stay.
      ValueError: if a parameter is not finite; nothing is written.
    """
    path = folder.absolute() / f"{int(state.step):08d}"
    host = jax.device_get(state)
    refuse_non_finite(host)
    if not _holds(path, host, meta):
        _write(path, host, meta)
    # The new one stays even if others have more steps: a better state may come at an earlier step.
    others = [other for other in _steps(folder) if other.name != path.name]
    for other in others[keep - 1 :]:
        shutil.rmtree(other.rename(other.with_name(PARTIAL + other.name)))
    return path


def _holds(path: pathlib.Path, state: PyTree, meta: dict[str, Any]) -> bool:
    """Whether `path` is an intact checkpoint with these arrays and this score."""
    if not path.exists() or manifest.damage(path) is not None:
        return False
    fields = manifest.read(path)
    if fields["arrays"] != manifest.shapes(state):
        return False
    if fields["meta"].get("score") != meta.get("score"):
        return False
    with _checkpointer() as checkpointer:
        saved = checkpointer.restore(path, args=ocp.args.StandardRestore(state))
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, saved, state)))


def _write(path: pathlib.Path, host: PyTree, meta: dict[str, Any]) -> None:
    """Writes a checkpoint; see `save`."""
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    _clear_partial(folder)
    _check_space(folder, host)
    partial = path.with_name(PARTIAL + path.name)
    try:
        with _quiet_writers(), _checkpointer() as checkpointer:
            checkpointer.save(partial, args=ocp.args.StandardSave(host), force=True)
        manifest.write(partial, host, meta)
        if path.exists() and manifest.damage(path) is not None:
            _rename_damaged(path)
        elif path.exists():
            # If the process dies now, the resumed run computes this step again and saves it.
            path.rename(path.with_name(f"{PARTIAL}replaced-{path.name}"))
        partial.rename(path)
    except OSError:
        raise
    except Exception as error:  # Because orbax wraps the errors of the system.
        raise OSError(errno.EIO, f"cannot write it: {_first_line(error)}", str(path)) from error
    finally:
        _clear_partial(folder)


def refuse_non_finite(state: PyTree) -> None:
    """Raises ValueError naming the first array of a state that is not finite."""
    unfit = [name for name, leaf in manifest.named_arrays(state) if not np.all(np.isfinite(leaf))]
    if unfit:
        raise ValueError(f"{unfit[0]} is not finite after step {int(state.step)}; not saved.")


def newest(folder: pathlib.Path) -> Checkpoint | None:
    """The newest intact checkpoint, or None if there has been none at all.

    It renames a damaged one to `damaged-...`, and logs a warning that names the one it uses.

    Raises:
      UsageError: if there are checkpoints but none is intact.
    """
    for path in (paths := _steps(folder)):
        problem = manifest.damage(path)
        if problem is None:
            fields = manifest.read(path)
            if path != paths[0]:
                logger.warning("Resuming from the checkpoint of step %d.", fields["step"])
            return Checkpoint(path, fields["step"], fields["meta"], manifest.digest(path))
        logger.warning("Checkpoint %s is damaged (%s); renaming it.", path, problem)
        _rename_damaged(path)
    damaged = sorted(path.name for path in folder.glob(f"{DAMAGED}*"))
    if damaged:
        raise UsageError(
            f"None of the checkpoints in {folder} is intact ({', '.join(damaged)}); restore one "
            "from a copy, delete the folder to start without it, or use another workdir."
        )
    return None


def refuse_fewer_steps(folder: pathlib.Path, num_steps: int) -> None:
    """Raises UsageError if a folder has a checkpoint beyond the last step of a run."""
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
      checkpoint: an intact checkpoint, as `newest` returns it.
      template: a state, or its `jax.eval_shape`, with the same structure.

    Raises:
      UsageError: if the checkpoint holds another network; it names the first difference.
    """
    saved, expected = manifest.read(checkpoint.path)["arrays"], manifest.shapes(template)
    for name in sorted(saved.keys() | expected.keys()):
        if saved.get(name) != expected.get(name):
            raise UsageError(
                f"Checkpoint {checkpoint.path} holds another network: {name} is "
                f"{_text(saved.get(name))} there and {_text(expected.get(name))} in this config; "
                "use the config it was trained with."
            )
    device = SingleDeviceSharding(jax.local_devices()[0])
    abstract = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=device), template
    )
    with _checkpointer() as checkpointer:
        restored: PyTree = checkpointer.restore(
            checkpoint.path.absolute(), args=ocp.args.StandardRestore(abstract)
        )
    return restored


def restore_arrays(checkpoint: Checkpoint) -> PyTree:
    """The state in `checkpoint` as NumPy arrays in dictionaries, without a template."""
    path = checkpoint.path.absolute()
    with _checkpointer(ocp.PyTreeCheckpointHandler) as checkpointer:
        leaves = checkpointer.metadata(path).item_metadata.tree
        as_arrays = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), leaves)
        restored: PyTree = checkpointer.restore(
            path, args=ocp.args.PyTreeRestore(restore_args=as_arrays)
        )
    return restored


def _checkpointer(
    handler: Callable[..., ocp.CheckpointHandler] = ocp.StandardCheckpointHandler,
) -> ocp.Checkpointer:
    """A checkpointer of orbax for this process alone: others do not take part."""
    index = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(primary_host=index, active_processes={index})
    return ocp.Checkpointer(handler(multiprocessing_options=alone), multiprocessing_options=alone)


def _steps(folder: pathlib.Path) -> list[pathlib.Path]:
    """Subfolders of finished saves, newest first."""
    if not folder.exists():
        return []
    steps = [path for path in folder.iterdir() if path.is_dir() and path.name.isdigit()]
    return sorted(steps, key=lambda path: int(path.name), reverse=True)


def _clear_partial(folder: pathlib.Path) -> None:
    """Removes the unfinished checkpoints of a process that died."""
    for path in folder.glob(f"{PARTIAL}*"):
        shutil.rmtree(path, ignore_errors=True)


def _rename_damaged(path: pathlib.Path) -> None:
    renamed = path.with_name(DAMAGED + path.name)
    shutil.rmtree(renamed, ignore_errors=True)
    path.rename(renamed)


def _check_space(folder: pathlib.Path, state: PyTree) -> None:
    """Raises OSError if the disk has no space for `state`, before anything is written."""
    num_bytes = 1.2 * sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(state)) + 1e6
    num_free = shutil.disk_usage(folder).free
    if num_free < num_bytes:
        raise OSError(
            errno.ENOSPC,
            f"no space left for a checkpoint of {num_bytes / 1e6:.0f} MB "
            f"({num_free / 1e6:.0f} MB free)",
            str(folder),
        )


@contextlib.contextmanager
def _quiet_writers() -> Iterator[None]:
    """Hides messages of orbax's threads about an event loop that a failed write has closed.

    The failure itself is raised. After it the hook stays, because the threads may print later.
    """
    former = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if "Event loop is closed" not in str(unraisable.exc_value):
            former(unraisable)

    sys.unraisablehook = hook
    yield
    sys.unraisablehook = former


def _text(shape: list[Any] | None) -> str:
    return "absent" if shape is None else f"{shape[0]}{shape[1:]}"


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
