"""Folders that tensorflow_datasets has prepared as array_record files, read without TensorFlow.

`<data_dir>/<name>/<version>/` holds `dataset_info.json`, `features.json`, and for each split
`<name>-<split>.array_record-00000-of-00001`, whose records are tf.train.Example protos.
"""

import hashlib
import io
import json
import logging
import re
import zipfile
from pathlib import Path

import numpy as np

from cat_jax.errors import UsageError, in_one_line
from cat_jax.storage import files

logger = logging.getLogger(__name__)


def find(folder: Path, command: str) -> Path | None:
    """The folder of the newest prepared version of a data set, or None.

    Args:
      folder: <data_dir>/<name>.
      command: shell command that prepares the data set, for errors.

    Raises:
      UsageError: if that version holds files of another format.
    """
    versions = [
        info.parent
        for info in folder.glob("*/dataset_info.json")
        if re.fullmatch(r"\d+\.\d+\.\d+", info.parent.name)
    ]
    if not versions:
        return None
    newest = max(versions, key=lambda version: [int(part) for part in version.name.split(".")])
    _check_format(newest, command)
    return newest


def read(
    folder: Path, split: str, image_shape: tuple[int, int, int], command: str
) -> tuple[np.ndarray, np.ndarray]:
    """A split's (images, labels): uint8 [N, H, W, C] and int32 [N], in the order on disk.

    Decoding takes seconds, so the user's cache keeps the arrays under the SHA-256 of the files.

    Args:
      folder: path that `find` returned.
      split: "train" or "test".
      image_shape: (H, W, C).
      command: shell command that prepares the data set, for errors.

    Raises:
      UsageError: if the files are missing, cut short, or hold something else.
    """
    name = folder.parent.name
    cached = files.cache_folder() / "data" / f"{name}-{split}-{_digest(folder, split)}.npz"
    try:
        with open(cached, "rb") as stream, np.load(stream) as arrays:
            return arrays["images"], arrays["labels"]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        pass  # It is absent, or damaged, which its checksums tell.
    try:
        images, labels = _decode(folder, split, image_shape)
    except Exception as error:  # array_record, protobuf and PIL share no type of error.
        raise UsageError(
            f"Cannot read {folder}/{name}-{split}.array_record* ({in_one_line(error)}); "
            f"delete {folder} and run `{command}` again."
        ) from error
    try:
        with files.replacing(cached) as temporary, open(temporary, "wb") as file:
            np.savez(file, images=images, labels=labels)
    except OSError as error:
        logger.warning("The decoded %s is not cached for the next time: %s.", name, error)
    return images, labels


def _digest(folder: Path, split: str) -> str:
    """SHA-256 of the names and bytes of a split's files, as hexadecimal digits."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob(f"*-{split}.array_record*")):
        digest.update(file.name.encode())
        with open(file, "rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _decode(folder: Path, split: str, shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The arrays that `read` returns, from the files.

    Records are fetched by the thousand and decoded here, in half the time that
    tensorflow_datasets' own decoder takes.
    """
    import tensorflow_datasets as tfds
    from tensorflow_datasets.proto import tf_example_pb2

    raw = tfds.decode.DeserializeMethod.RAW_BYTES
    source = tfds.builder_from_directory(folder).as_data_source(split, deserialize_method=raw)
    images = np.empty((len(source), *shape), np.uint8)
    labels = np.empty(len(source), np.int32)
    for start in range(0, len(source), 1000):
        keys = range(start, min(start + 1000, len(source)))
        for i, record in zip(keys, source.__getitems__(keys), strict=True):
            feature = tf_example_pb2.Example.FromString(record).features.feature
            images[i] = _pixels(feature["image"].bytes_list.value[0], shape)
            labels[i] = feature["label"].int64_list.value[0]
    return images, labels


def _pixels(encoded: bytes, shape: tuple[int, int, int]) -> np.ndarray:
    """The pixels of a PNG or JPEG, uint8 [H, W, C]."""
    from PIL import Image

    height, width, channels = shape
    with Image.open(io.BytesIO(encoded), formats=("PNG", "JPEG")) as image:
        form = (image.size, image.mode)
        expected = ((width, height), "L" if channels == 1 else "RGB")
        if form != expected:
            raise ValueError(f"an image has size and mode {form}, expected {expected}")
        return np.asarray(image).reshape(shape)


def _check_format(folder: Path, command: str) -> None:
    """Raises UsageError unless a prepared folder's files are array_record."""
    try:
        info = json.loads((folder / "dataset_info.json").read_text())
        file_format = info.get("fileFormat", "tfrecord")
    except (ValueError, AttributeError) as error:
        raise UsageError(
            f"{folder}/dataset_info.json is not what tensorflow_datasets writes; delete {folder} "
            f"and run `{command}` again."
        ) from error
    if file_format != "array_record":
        raise UsageError(
            f"{folder} holds {file_format} files, which only TensorFlow reads; move the "
            f"folder away and run `{command}`."
        )
