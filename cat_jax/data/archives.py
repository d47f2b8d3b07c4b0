"""The original archives of MNIST and CIFAR: verified, and read without running anything in them."""

import codecs
import gzip
import hashlib
import io
import pickle
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cat_jax.data.records import FORMS, in_one_line
from cat_jax.errors import UsageError

# A split as named columns of one length: "image" uint8 [N, H, W, C], "label" [N], ...
Columns = Mapping[str, Any]

# The published MD5 of each archive.
CHECKSUMS: dict[str, dict[str, str]] = {
    "mnist": {
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
    "cifar10": {"cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"},
    "cifar100": {"cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85"},
}


def read_archives(
    name: str, source: Path, checksums: Mapping[str, str] | None = None
) -> dict[str, Columns]:
    """The splits "train" and "test" of a data set, in tensorflow_datasets' order of examples.

    Args:
      name: of the data set; a key of `CHECKSUMS`.
      source: the folder that holds the archives as they were published.
      checksums: MD5 by file name in place of the published ones.

    Raises:
      UsageError: if an archive is missing, is not the published one, or cannot be read.
    """
    for file, md5 in CHECKSUMS[name].items():
        _verify(source / file, (checksums or {}).get(file, md5), FORMS[name].homepage)
    try:
        splits = _READERS[name](source)
        return {split: _in_tfds_order(split, columns) for split, columns in splits.items()}
    except Exception as error:  # what is no archive, or no pickle, raises nearly any type
        reason = in_one_line(error)
        raise UsageError(f"The archives of {name} in {source} cannot be read: {reason}.") from error


def _verify(path: Path, md5: str, homepage: str) -> None:
    """Raises UsageError unless the file is there and has this MD5."""
    if not path.is_file():
        raise UsageError(f"{path} is missing; {path.name} is to be had from {homepage}.")
    with path.open("rb") as file:
        got = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if got != md5:
        raise UsageError(f"{path} has MD5 {got}, expected {md5}; fetch it again from {homepage}.")


def _in_tfds_order(split: str, columns: Columns) -> Columns:
    """The same examples in the order that tensorflow_datasets stores them in: by a salted hash.

    So either way of preparing a data set gives the same fingerprint and the same batches.
    """
    num_examples = len(columns["image"])
    digests = [hashlib.md5(f"{split}{i}".encode()).digest() for i in range(num_examples)]
    order = np.array(sorted(range(num_examples), key=digests.__getitem__))
    return {column: np.asarray(values)[order] for column, values in columns.items()}


def _mnist(source: Path) -> dict[str, Columns]:
    return {
        split: {
            "image": _idx(source / f"{prefix}-images-idx3-ubyte.gz", num_axes=3)[..., None],
            "label": _idx(source / f"{prefix}-labels-idx1-ubyte.gz", num_axes=1),
        }
        for split, prefix in (("train", "train"), ("test", "t10k"))
    }


def _idx(path: Path, num_axes: int) -> np.ndarray:
    """The array in an idx file: two zero bytes, type 8 (uint8), axes, big-endian sizes, bytes."""
    data = gzip.decompress(path.read_bytes())
    if data[:4] != bytes([0, 0, 8, num_axes]):
        raise ValueError(f"{path.name} does not begin as an idx file of {num_axes} axes does")
    sizes = np.frombuffer(data, ">u4", count=num_axes, offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * num_axes).reshape(sizes)


def _cifar10(source: Path) -> dict[str, Columns]:
    files = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
    return _cifar(
        source / "cifar-10-python.tar.gz", "cifar-10-batches-py", files, {"label": "labels"}
    )


def _cifar100(source: Path) -> dict[str, Columns]:
    labels = {"label": "fine_labels", "coarse_label": "coarse_labels"}
    files = {"train": ["train"], "test": ["test"]}
    return _cifar(source / "cifar-100-python.tar.gz", "cifar-100-python", files, labels)


def _cifar(
    path: Path, folder: str, files: Mapping[str, list[str]], labels: Mapping[str, str]
) -> dict[str, Columns]:
    """The splits of a CIFAR archive; `labels` maps our label columns to the archive's keys."""
    splits: dict[str, Columns] = {}
    with tarfile.open(path, "r:gz") as archive:
        for split, members in files.items():
            parts = [_unpickle_member(archive, f"{folder}/{member}") for member in members]
            pixels = np.concatenate([np.asarray(part["data"], np.uint8) for part in parts])
            images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            columns = {
                ours: np.concatenate([part[key] for part in parts]) for ours, key in labels.items()
            }
            splits[split] = {
                "image": images,
                "id": [f"{split}_{i:05d}" for i in range(len(images))],
                **columns,
            }
    return splits


def _unpickle_member(archive: tarfile.TarFile, member: str) -> dict[str, Any]:
    """The dict pickled in a file of an archive, its keys as text."""
    file = archive.extractfile(member)
    if file is None:
        raise ValueError(f"{member} is not a file")
    batch = _ArrayUnpickler(io.BytesIO(file.read()), encoding="bytes").load()
    if not isinstance(batch, dict):
        raise ValueError(f"{member} holds no dict")
    return {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}


def _dtype(name: Any, align: int = 0, copy: int = 0) -> np.dtype:
    """A dtype as Python 2 pickled it: NumPy has deprecated integers for the two flags."""
    return np.dtype(name, bool(align), bool(copy))


# All that a pickled array of numbers needs. Where NumPy keeps its two functions varies with its
# version, and a pickle names the place of the version that wrote it.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_FROM_BUFFER = np.empty(0).__reduce_ex__(5)[0]
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy.core.numeric", "_frombuffer"): _FROM_BUFFER,
    ("numpy._core.numeric", "_frombuffer"): _FROM_BUFFER,
    ("_codecs", "encode"): codecs.encode,
}


class _ArrayUnpickler(pickle.Unpickler):
    """Loads numbers, text, lists, dicts and NumPy arrays; refuses to look up anything else."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        try:
            return _ALLOWED[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"a pickle asks for {module_name}.{global_name}, which no data set needs"
            ) from None


_READERS: dict[str, Callable[[Path], dict[str, Columns]]] = {
    "mnist": _mnist,
    "cifar10": _cifar10,
    "cifar100": _cifar100,
}
