"""Files of weights: safetensors, and PyTorch's.

A part is one network, "classifier" or "mask_net". A `.pth` file holds both; safetensors need one
file for each.
"""

import contextlib
import hashlib
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import safetensors
from safetensors import numpy as safetensors_numpy

from cat_jax.errors import UsageError, check_choice
from cat_jax.storage import files

CLASSIFIER, MASK_NET = "classifier", "mask_net"
ANY = ""  # The part of a file that holds one network and does not name its part.
TORCH_NAMES = {CLASSIFIER: "state_dict", MASK_NET: "state_dict_mask"}  # In files of the authors.
OTHER_NAMES = (
    "model_state_dict",
    "model",
    "net",
    "last",
)  # Classifiers in files of other programs.
ABOUT = "cat_jax"  # Entry with the description of the arrays.
SUFFIXES = {"safetensors": ".safetensors", "torch": ".pth"}  # By --format.
TORCH_SUFFIXES = (".pth", ".pt", ".pth.tar")
ALL_SUFFIXES = (".safetensors", *TORCH_SUFFIXES)


class Part(NamedTuple):
    """One network of a file.

    Attributes:
      entries: name -> array, a state dict.
      about: description in plain values: "network", its name; "mean" and "std"; "config", the
        fields that identify the run in results. {} in files of other programs.
    """

    entries: dict[str, np.ndarray]
    about: dict[str, Any]


Parts = Mapping[str, Part]


def read(file: pathlib.Path) -> dict[str, Part]:
    """The parts of a file.

    Raises:
      UsageError: if the file is absent, damaged, in another format, or requires PyTorch.
    """
    if not file.exists():
        raise UsageError(f"There is no {file}; name a file of weights.")
    if file.is_dir():
        raise UsageError(f"{file} is a folder; expected a file of weights.")
    with open(file, "rb") as stream:
        if stream.read(64).lstrip().startswith(b"<"):
            raise UsageError(f"{file} is a web page; expected weights: download it again.")
    with _one_line_errors(file):
        if file.name.endswith(".safetensors"):
            return _read_safetensors(file)
        if file.name.endswith(TORCH_SUFFIXES):
            return _read_torch(file)
    suffixes = ", ".join(ALL_SUFFIXES)
    raise UsageError(f"{file} ends in {file.suffix!r}; expected one of {suffixes}.")


def write(stem: pathlib.Path, form: str, parts: Parts) -> list[pathlib.Path]:
    """Writes the parts; replaces files of the same names.

    Args:
      stem: path without its suffix.
      form: a key of `SUFFIXES`.
      parts: networks by their names.

    Returns:
      The files, the classifier's first.
    """
    check_choice("format", form, SUFFIXES)
    stem.parent.mkdir(parents=True, exist_ok=True)
    if form == "torch":
        path = stem.with_name(stem.name + SUFFIXES[form])
        named = {TORCH_NAMES[name]: part.entries for name, part in parts.items()}
        save_torch(path, {**named, ABOUT: {name: part.about for name, part in parts.items()}})
        return [path]
    paths = []
    for name, part in parts.items():
        tail = "" if name == CLASSIFIER else f"_{name}"
        paths.append(stem.with_name(stem.name + tail + SUFFIXES[form]))
        save_safetensors(
            paths[-1], part.entries, {"format": "pt", ABOUT: files.json_text(part.about).rstrip()}
        )
    return paths


def digest(path: pathlib.Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def save_safetensors(
    file: pathlib.Path, arrays: Mapping[str, np.ndarray], about: dict[str, str]
) -> None:
    """Writes arrays and their description; the file is complete or absent."""
    contiguous = {  # Reshaped, because NumPy turns scalars into vectors.
        name: np.ascontiguousarray(value).reshape(value.shape) for name, value in arrays.items()
    }
    with files.replacing(
        file
    ) as temporary:  # Because save_file would make it readable by its owner only.
        temporary.write_bytes(safetensors_numpy.save(contiguous, metadata=about))


def save_torch(file: pathlib.Path, content: Mapping[str, Any]) -> None:
    """Writes nested dictionaries, arrays as tensors; the file is complete or absent."""
    torch = import_torch(f"{file.name}, in PyTorch's format,")

    def tensors(value: Any) -> Any:
        return torch.tensor(value) if isinstance(value, np.ndarray) else value

    with files.replacing(file) as temporary:
        torch.save(jax.tree.map(tensors, dict(content)), temporary)


def import_torch(user: str) -> Any:
    """PyTorch, which is optional.

    Args:
      user: what requires PyTorch, for the error.

    Raises:
      UsageError: if PyTorch is not installed.
    """
    try:
        import torch
    except ImportError:
        raise UsageError(
            f"{user} requires PyTorch, which is not installed; install it with pip install torch, "
            "or use .safetensors files, which do not need it."
        ) from None
    return torch


def _read_safetensors(file: pathlib.Path) -> dict[str, Part]:
    with safetensors.safe_open(file, framework="numpy") as opened:
        entries = {name: opened.get_tensor(name) for name in opened.keys()}
        about = json.loads((opened.metadata() or {}).get(ABOUT, "{}"))
    return {ANY: Part(entries, about)}


def _read_torch(file: pathlib.Path) -> dict[str, Part]:
    """Reads both networks of a file of the authors, or a state dict, alone or in `OTHER_NAMES`."""
    torch = import_torch(str(file))
    content = torch.load(file, map_location="cpu", weights_only=True)
    names = {part: name for part, name in TORCH_NAMES.items() if name in content}
    classifiers = [name for name in OTHER_NAMES if isinstance(content.get(name), dict)]
    if not names and classifiers:
        names = {CLASSIFIER: classifiers[0]}
    if not names and any(torch.is_tensor(value) for value in content.values()):
        names, content = {ANY: ANY}, {ANY: content}
    if not names:
        raise UsageError(
            f"{file} holds {', '.join(map(repr, content)) or 'nothing'}; expected a state dict, or "
            f"one under {', '.join(map(repr, (*TORCH_NAMES.values(), *OTHER_NAMES)))}."
        )
    abouts = content.get(ABOUT, {})
    return {
        part: Part(
            {key: _numpy(torch, value) for key, value in content[name].items()},
            abouts.get(part, {}),
        )
        for part, name in names.items()
    }


def _numpy(torch: Any, value: Any) -> np.ndarray:
    """A tensor, or a number beside tensors, as an array; bfloat16 becomes float32."""
    if not torch.is_tensor(value):
        return np.asarray(value)
    array: np.ndarray = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    return array


@contextlib.contextmanager
def _one_line_errors(file: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except UsageError:
        raise
    except Exception as error:  # A damaged file can raise nearly any type.
        raise UsageError(
            f"{file} cannot be read ({type(error).__name__}); expected a complete file of arrays "
            "and plain values, no Python objects: download it again, or save only the state dict."
        ) from error
