"""Images beside the training split, generated or with pseudo-labels, from an .npz file.

The file holds `image`, uint8 [M, H, W, C], and `label`, integers [M]. Arrays that `numpy.savez`
stored uncompressed stay on disk, and a batch reads its images alone; those of
`numpy.savez_compressed` are read into memory.
"""

import functools
import math
import zipfile
from pathlib import Path
from typing import BinaryIO

import numpy as np

from cat_jax.data import splits
from cat_jax.data.splits import Spec, Split
from cat_jax.errors import UsageError, in_one_line
from cat_jax.storage.paths import local_path

FIELD = "config.extra_data.path"
LOCAL_HEADER = 30  # Bytes of a zip member's header before its name.


def load(path: str, spec: Spec) -> Split:
    """The images and labels of a file.

    Args:
      path: path of the .npz file.
      spec: shapes and classes of the training split, which the images have to share.

    Raises:
      UsageError: if the file is missing, damaged, or has other arrays.
    """
    images, labels = _read(path)
    if images.shape[1:] != spec.image_shape:
        raise UsageError(
            f"{FIELD}: the images in {path} are {list(images.shape)}; expected "
            f"{[len(images), *spec.image_shape]}, as those of the training split."
        )
    if labels.min() < 0 or labels.max() >= spec.num_classes:
        raise UsageError(
            f"{FIELD}: the labels in {path} are {labels.min()} to {labels.max()}; expected 0 to "
            f"{spec.num_classes - 1}, those of the training split. Images without a label need the "
            "prediction of a classifier, a pseudo-label."
        )
    return Split(images, labels.astype(np.int32))


def identity(path: str) -> str:
    """Twelve hexadecimal digits of the fingerprint of a file's images and labels.

    Raises:
      UsageError: if the file is missing, damaged, or has other arrays.
    """
    return _identity(path, _modified(path))


@functools.lru_cache(maxsize=4)  # Because a million images take seconds.
def _identity(path: str, modified: int) -> str:
    del modified
    return splits.fingerprint(_read(path))[:12]


def _modified(path: str) -> int:
    """When the file was changed, in nanoseconds."""
    file = local_path(path, FIELD)
    if not file.is_file():
        raise UsageError(f"{FIELD} is {path}, which does not exist; name an .npz file.")
    return file.stat().st_mtime_ns


def number(share: float, batch_size: int) -> int:
    """Number of extra images in a batch: the share, rounded.

    Raises:
      UsageError: if a batch would have images of one kind alone.
    """
    extra = math.floor(share * batch_size + 0.5)
    if not 0 < extra < batch_size:
        raise UsageError(
            f"config.extra_data.share is {share:g} of a batch of {batch_size}, {extra} images; "
            f"expected 1 to {batch_size - 1}."
        )
    return extra


def _read(path: str) -> Split:
    """The arrays `image` and `label` of a file, checked as far as no data set is needed."""
    _modified(path)  # For its error.
    file = local_path(path, FIELD)
    arrays = _open(file)
    if missing := {"image", "label"} - arrays.keys():
        raise UsageError(
            f"{FIELD}: {file} has the arrays {', '.join(arrays) or 'none'}; expected image and "
            f"label, but {' and '.join(sorted(missing))} is missing."
        )
    images, labels = arrays["image"], arrays["label"]
    if images.dtype != np.uint8 or images.ndim != 4 or not len(images):
        raise UsageError(
            f"{FIELD}: the images in {file} are {images.dtype} {list(images.shape)}; expected "
            "uint8 [N, H, W, C]."
        )
    if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        raise UsageError(
            f"{FIELD}: the labels in {file} are {labels.dtype} {list(labels.shape)}; expected "
            f"whole numbers [{len(images)}], one for each image."
        )
    return Split(images, labels)


def _open(file: Path) -> dict[str, np.ndarray]:
    """The arrays of a file, mapped from the disk where they are stored uncompressed."""
    try:
        with open(file, "rb") as stream, zipfile.ZipFile(stream) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            mapped = {
                info.filename.removesuffix(".npy"): _map(file, stream, info)
                for info in members
                if info.compress_type == zipfile.ZIP_STORED
            }
        with np.load(file) as arrays:  # Pickles are refused.
            rest = {name: arrays[name] for name in arrays.files if name not in mapped}
        return mapped | rest
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"{FIELD}: {file} cannot be read ({in_one_line(error)}); expected a file of "
            "numpy.savez with arrays of numbers."
        ) from error


def _map(file: Path, stream: BinaryIO, info: zipfile.ZipInfo) -> np.ndarray:
    """The array of an uncompressed member, mapped from the disk.

    Raises:
      ValueError: for a member that holds Python objects or is no array.
    """
    stream.seek(info.header_offset + LOCAL_HEADER - 4)
    lengths = stream.read(4)  # Of the name and of the extra field, before the data.
    start = sum(int.from_bytes(lengths[i : i + 2], "little") for i in (0, 2))
    stream.seek(info.header_offset + LOCAL_HEADER + start)
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0
    if version != (1, 0):
        read = np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError(f"{info.filename} holds Python objects")
    size = math.prod(shape) * dtype.itemsize
    if stream.tell() + size > file.stat().st_size:
        raise ValueError(f"{info.filename} is cut short")
    if not size:
        return np.empty(shape, dtype)
    place = stream.tell()
    return np.memmap(file, dtype, "r", place, shape, order="F" if is_fortran else "C")
