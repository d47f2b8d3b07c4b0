"""The manifest of a checkpoint: its step, the shapes of its arrays, the SHA-256 of its files."""

import hashlib
import json
import pathlib
from typing import Any

import jax

from cat_jax.storage import files
from cat_jax.types import PyTree

MANIFEST = "manifest.json"
FIELDS = {"step", "arrays", "files", "meta"}  # Without the checksum of the manifest itself.


def write(path: pathlib.Path, state: PyTree, meta: dict[str, Any]) -> None:
    """Writes the manifest of a checkpoint, after all its other files.

    Args:
      path: folder of the checkpoint.
      state: state in the checkpoint.
      meta: metadata of the caller.
    """
    step = int(state.step)
    fields = {"step": step, "arrays": shapes(state), "files": _sums(path), "meta": meta}
    text = files.json_text(fields | {"sum": files.json_sum(fields)}, indent=1)
    files.write_text(path / MANIFEST, text)


def read(path: pathlib.Path) -> dict[str, Any]:
    """The manifest without its checksum, which manifests of earlier versions lack.

    Raises:
      FileNotFoundError: if there is none; other errors if it is damaged.
    """
    fields: dict[str, Any] = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    if fields.keys() != FIELDS and fields.pop("sum") != files.json_sum(fields):
        raise ValueError("The manifest has changed.")
    return fields


def digest(path: pathlib.Path) -> str:
    """The first twelve hexadecimal digits of the SHA-256 of a manifest."""
    return hashlib.sha256((path / MANIFEST).read_bytes()).hexdigest()[:12]


def damage(path: pathlib.Path) -> str | None:
    """A sentence that says how a checkpoint is damaged; None for an intact one."""
    try:
        fields = read(path)
    except FileNotFoundError:
        return f"it has no {MANIFEST}, so its writing was not finished"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} cannot be read"
    if f"{fields['step']:08d}" != path.name:
        return f"its manifest is of step {fields['step']}"
    sums = _sums(path)
    for name, expected in fields["files"].items():
        if name not in sums:
            return f"{name} is missing"
        if sums[name] != expected:
            return f"{name} has changed"
    return None


def named_arrays(tree: PyTree) -> list[tuple[str, Any]]:
    """The arrays of a tree, with their paths as names."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves]


def shapes(tree: PyTree) -> dict[str, list[Any]]:
    """The type and shape of each array of a tree, by its name: ["float32", 3, 3, 1, 32]."""
    return {name: [str(leaf.dtype), *leaf.shape] for name, leaf in named_arrays(tree)}


def _sums(path: pathlib.Path) -> dict[str, str]:
    """SHA-256 of every file below `path` except the manifest."""
    sums = {}
    for file in sorted(path.rglob("*")):
        if file.is_file() and file.name != MANIFEST:
            with open(file, "rb") as stream:
                sums[file.relative_to(path).as_posix()] = hashlib.file_digest(
                    stream, "sha256"
                ).hexdigest()
    return sums
