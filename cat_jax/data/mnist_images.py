"""`mnist`: 70,000 handwritten digits of 28x28 pixels (LeCun et al. 1998)."""

import gzip
from pathlib import Path

import numpy as np

from cat_jax.data.archives import Archives
from cat_jax.data.source import Source
from cat_jax.data.splits import Split
from cat_jax.runtime.registry import register


def read(source: Path) -> dict[str, Split]:
    """The splits "train" and "test" of the published archives in a folder, in their order."""
    return {
        split: Split(
            _idx(source / f"{prefix}-images-idx3-ubyte.gz", num_axes=3)[..., None],
            _idx(source / f"{prefix}-labels-idx1-ubyte.gz", num_axes=1),
        )
        for split, prefix in (("train", "train"), ("test", "t10k"))
    }


def _idx(path: Path, num_axes: int) -> np.ndarray:
    """The array in an idx file: two zero bytes, type 8 (uint8), axes, big-endian sizes, bytes."""
    data = gzip.decompress(path.read_bytes())
    if data[:4] != bytes([0, 0, 8, num_axes]):
        raise ValueError(f"{path.name} does not begin as an idx file of {num_axes} axes does")
    sizes = np.frombuffer(data, ">u4", count=num_axes, offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * num_axes).reshape(sizes)


ARCHIVES = Archives(
    "mnist",
    image_shape=(28, 28, 1),
    num_classes=10,
    homepage="https://storage.googleapis.com/cvdf-datasets/mnist/",
    checksums={
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
    read=read,
)
register(Source("mnist", ARCHIVES.load, ARCHIVES, num_train=60_000, num_test=10_000))
