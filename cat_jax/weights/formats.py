"""What each format of weights looks like; `weight_files` chooses among them.

Names and layout are PyTorch's in all of them but an orbax folder, which holds our variables.
"""

import json
import pathlib
import shutil
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
import safetensors
from safetensors import numpy as safetensors_numpy

from cat_jax.errors import UsageError
from cat_jax.storage import files
from cat_jax.types import PyTree
from cat_jax.weights import pytorch_names

CLASSIFIER, MASK_NET = "classifier", "mask_net"
ANY = ""  # The part of a file that holds one network and does not say which.
TORCH_NAMES = {CLASSIFIER: "state_dict", MASK_NET: "state_dict_mask"}  # The authors'.
OTHER_NAMES = ("model_state_dict", "model", "net")  # Of a classifier in others' files.
ABOUT = "cat_jax"  # Beside the arrays: what they are of.
ABOUT_FILE = "cat_jax.json"


class Part(NamedTuple):
    """One network of a file.

    Attributes:
      entries: name -> array, a state dict.
      about: what the file says of it, in plain values: "network", its class; "mean" and "std";
        "config", the fields by which results name what was trained. {} if others wrote it.
    """

    entries: dict[str, np.ndarray]
    about: dict[str, Any]


Parts = Mapping[str, Part]
Arrays = Mapping[str, np.ndarray]


def import_torch(what: str) -> Any:
    """PyTorch, which is optional.

    Raises:
      UsageError: if it is not installed, since `what` needs it.
    """
    try:
        import torch
    except ImportError:
        raise UsageError(
            f"{what} needs PyTorch, which is not installed; get it by pip install "
            "torch, or use .safetensors, which do without."
        ) from None
    return torch


def read_safetensors(file: pathlib.Path) -> dict[str, Part]:
    """One network."""
    with safetensors.safe_open(file, framework="numpy") as opened:
        entries = {name: opened.get_tensor(name) for name in opened.keys()}
        about = json.loads((opened.metadata() or {}).get(ABOUT, "{}"))
    return {ANY: Part(entries, about)}


def write_safetensors(file: pathlib.Path, part: Part) -> None:
    """One network."""
    save_safetensors(file, part.entries, {"format": "pt", ABOUT: json.dumps(part.about)})


def save_safetensors(file: pathlib.Path, arrays: Arrays, about: dict[str, str]) -> None:
    """Arrays and what they are of; the file is written whole, as by all that follow."""
    whole = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
    with files.replacing(file) as temporary:  # save_file would let none but its owner read it.
        temporary.write_bytes(safetensors_numpy.save(whole, metadata=about))


def read_npz(file: pathlib.Path) -> dict[str, Part]:
    """One network."""
    if not zipfile.is_zipfile(file):
        raise ValueError("It is no archive.")
    with np.load(file, allow_pickle=False) as kept:
        entries = {name: kept[name] for name in kept.files}
    about = json.loads(str(entries.pop(ABOUT))) if ABOUT in entries else {}
    return {ANY: Part(entries, about)}


def write_npz(file: pathlib.Path, part: Part) -> None:
    """One network."""
    save_npz(file, part.entries | {ABOUT: np.array(json.dumps(part.about))})


def save_npz(file: pathlib.Path, arrays: Arrays) -> None:
    """Arrays by their names."""
    with files.replacing(file) as temporary, open(temporary, "wb") as stream:
        np.savez(stream, **dict[str, Any](arrays))


def read_torch(file: pathlib.Path) -> dict[str, Part]:
    """The authors' form, both networks; or a state dict, by itself or in one of `OTHER_NAMES`."""
    torch = import_torch(str(file))
    found = torch.load(file, map_location="cpu", weights_only=True)
    names = {part: name for part, name in TORCH_NAMES.items() if name in found}
    others = [name for name in OTHER_NAMES if isinstance(found.get(name), dict)]
    if not names and others:
        names = {CLASSIFIER: others[0]}
    if not names and any(torch.is_tensor(value) for value in found.values()):
        names, found = {ANY: ANY}, {ANY: found}
    if not names:
        raise UsageError(
            f"{file} holds {', '.join(map(repr, found)) or 'nothing'}; expected a state dict, or "
            f"one under {', '.join(map(repr, (*TORCH_NAMES.values(), *OTHER_NAMES)))}."
        )
    abouts = found.get(ABOUT, {})
    return {
        part: Part(
            {key: _numpy(torch, value) for key, value in found[name].items()}, abouts.get(part, {})
        )
        for part, name in names.items()
    }


def _numpy(torch: Any, value: Any) -> np.ndarray:
    """A tensor, or a number beside tensors; what NumPy lacks becomes float32."""
    if not torch.is_tensor(value):
        return np.asarray(value)
    array: np.ndarray = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    return array


def write_torch(file: pathlib.Path, parts: Parts) -> None:
    """Both networks, in the authors' form."""
    named = {TORCH_NAMES[name]: part.entries for name, part in parts.items()}
    save_torch(file, {**named, ABOUT: _abouts(parts)})


def save_torch(file: pathlib.Path, content: Mapping[str, Any]) -> None:
    """Nested dictionaries, in which arrays become tensors."""
    torch = import_torch(f"{file.name}, in PyTorch's format,")

    def tensors(value: Any) -> Any:
        return torch.tensor(value) if isinstance(value, np.ndarray) else value

    with files.replacing(file) as temporary:
        torch.save(jax.tree.map(tensors, dict(content)), temporary)


def _abouts(parts: Parts) -> dict[str, dict[str, Any]]:
    return {name: part.about for name, part in parts.items()}


def read_orbax(folder: pathlib.Path) -> dict[str, Part]:
    """Both networks, of a folder that `write_orbax` made."""
    abouts = json.loads((folder / ABOUT_FILE).read_text(encoding="utf-8"))
    found = restore_tree(folder)
    return {
        name: Part(pytorch_names.to_state_dict(about["network"], found[name]), about)
        for name, about in abouts.items()
    }


def write_orbax(folder: pathlib.Path, parts: Parts) -> None:
    """Both networks, as variables.

    Raises:
      UsageError: if the folder is there and holds something else.
    """
    if folder.exists() and not (folder / ABOUT_FILE).exists():
        raise UsageError(f"{folder} is there and is no export; name another: --out=...")
    tree = {
        name: pytorch_names.from_state_dict(part.about["network"], part.entries)
        for name, part in parts.items()
    }
    partial = folder.with_name(f".{folder.name}.tmp")
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(partial.absolute(), tree, force=True)
    files.write_text(partial / ABOUT_FILE, json.dumps(_abouts(parts), indent=1))
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def restore_tree(folder: pathlib.Path) -> PyTree:
    """All that orbax keeps in a folder, as NumPy arrays: whatever devices it was saved on."""
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        kept = checkpointer.metadata(folder.absolute()).item_metadata.tree
        how = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), kept)
        return checkpointer.restore(
            folder.absolute(), args=ocp.args.PyTreeRestore(restore_args=how)
        )
