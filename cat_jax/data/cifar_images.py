"""`cifar10` and `cifar100`: 60,000 photographs of 32x32 pixels (Krizhevsky 2009)."""

import codecs
import io
import pickle
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cat_jax.data.archives import Archives
from cat_jax.data.source import Source
from cat_jax.data.splits import Split
from cat_jax.runtime.registry import register

HOMEPAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"


def read_cifar10(source: Path) -> dict[str, Split]:
    """The splits "train" and "test" of the archive in a folder, in its order."""
    with tarfile.open(source / "cifar-10-python.tar.gz", "r:gz") as archive:
        members = [f"cifar-10-batches-py/data_batch_{i}" for i in range(1, 6)]
        train = _split(archive, members, "labels")
        return {
            "train": train,
            "test": _split(archive, ["cifar-10-batches-py/test_batch"], "labels"),
        }


def read_cifar100(source: Path) -> dict[str, Split]:
    """The splits "train" and "test", with the labels of the 100 fine classes."""
    with tarfile.open(source / "cifar-100-python.tar.gz", "r:gz") as archive:
        return {
            split: _split(archive, [f"cifar-100-python/{split}"], "fine_labels")
            for split in ("train", "test")
        }


def _split(archive: tarfile.TarFile, members: Sequence[str], labels: str) -> Split:
    """The examples in some files of an archive; `labels` is the key of their labels."""
    batches = [_unpickle_member(archive, member) for member in members]
    pixels = np.concatenate([np.asarray(batch["data"], np.uint8) for batch in batches])
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Split(images, np.concatenate([batch[labels] for batch in batches]))


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


CIFAR10 = Archives(
    "cifar10",
    image_shape=(32, 32, 3),
    num_classes=10,
    homepage=HOMEPAGE,
    checksums={"cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"},
    read=read_cifar10,
)
CIFAR100 = Archives(
    "cifar100",
    image_shape=(32, 32, 3),
    num_classes=100,
    homepage=HOMEPAGE,
    checksums={"cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85"},
    read=read_cifar100,
)
register(
    Source(
        "cifar10",
        CIFAR10.load,
        CIFAR10,
        num_train=50_000,
        num_test=10_000,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2471, 0.2435, 0.2616),
    ),
    Source(
        "cifar100",
        CIFAR100.load,
        CIFAR100,
        num_train=50_000,
        num_test=10_000,
        mean=(0.5070751592371323, 0.48654887331495095, 0.4409178433670343),
        std=(0.2673342858792401, 0.2564384629170883, 0.27615047132568404),
    ),
)
