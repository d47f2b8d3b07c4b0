"""Folders of array_record files, as tensorflow_datasets lays them out, read without TensorFlow.

`<data_dir>/<name>/<version>/` holds `dataset_info.json`, `features.json`, and for each split
`<name>-<split>.array_record-00000-of-00001`, whose records are tf.train.Example protos.
"""

import hashlib
import io
import json
import logging
import re
import shlex
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cat_jax.errors import UsageError
from cat_jax.storage import files

logger = logging.getLogger(__name__)


class Form(NamedTuple):
    """What an example of a data set looks like on disk.

    Attributes:
      version: of the form, as tensorflow_datasets numbers it.
      image_shape: (H, W, C).
      classes: the label columns, and how many classes each has.
      has_id: is there a text column "id"?
      homepage: where the data set comes from.
    """

    version: str
    image_shape: tuple[int, int, int]
    classes: Mapping[str, int]
    has_id: bool
    homepage: str


_CIFAR_PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
FORMS: dict[str, Form] = {
    "mnist": Form(
        "3.0.1",
        (28, 28, 1),
        {"label": 10},
        False,
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    "cifar10": Form("3.0.2", (32, 32, 3), {"label": 10}, True, _CIFAR_PAGE),
    "cifar100": Form("3.0.2", (32, 32, 3), {"label": 100, "coarse_label": 20}, True, _CIFAR_PAGE),
}


def find_folder(name: str, data_dir: str) -> Path | None:
    """The folder of the newest prepared version of a data set, or None.

    Raises:
      UsageError: if that version is there but holds files of another format.
    """
    folders = [
        info.parent
        for info in _dataset_folder(name, data_dir).glob("*/dataset_info.json")
        if re.fullmatch(r"\d+\.\d+\.\d+", info.parent.name)
    ]
    if not folders:
        return None
    folder = max(folders, key=lambda folder: [int(part) for part in folder.name.split(".")])
    _check_format(folder, name)
    return folder


def require_folder(name: str, data_dir: str) -> Path:
    """The folder of the newest prepared version of a data set.

    Raises:
      UsageError: if there is none; it says how to prepare one.
    """
    folder = find_folder(name, data_dir)
    if folder is None:
        raise UsageError(
            f"{name} is not prepared: {_dataset_folder(name, data_dir)} has no "
            f"<version>/dataset_info.json; run `{command(name, data_dir)}`: with --source=FOLDER "
            "it reads the original archives without TensorFlow, without it tfds downloads them "
            "and needs the extra `prepare` (TensorFlow)."
        )
    return folder


def command(name: str, data_dir: str) -> str:
    """The shell command that prepares a data set."""
    where = shlex.quote(str(Path(data_dir).expanduser()))
    return f"python -m cat_jax.data --dataset={name} --data_dir={where}"


def read_split(folder: Path, name: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    """A split's (images, labels): uint8 [N, H, W, C] and int32 [N], in the order on disk.

    Decoding takes seconds: what it gave is kept in the user's cache, under the SHA-256 of the
    files, so that it is never that of others.

    Raises:
      UsageError: if the files are missing, cut short, or hold something else.
    """
    kept = files.cache_folder() / "data" / f"{name}-{split}-{_digest(folder, name, split)}.npz"
    try:
        with open(kept, "rb") as stream, np.load(stream) as arrays:
            return arrays["images"], arrays["labels"]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        pass  # There is none, or it is damaged, which its checksums tell.
    images, labels = _decode_split(folder, name, split)
    try:
        with files.replacing(kept) as temporary, open(temporary, "wb") as file:
            np.savez(file, images=images, labels=labels)
    except OSError as error:
        logger.warning("The decoded %s is not kept for the next time: %s.", name, error)
    return images, labels


def _digest(folder: Path, name: str, split: str) -> str:
    """SHA-256 of the names and bytes of a split's files, as hexadecimal digits."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob(f"{name}-{split}.array_record*")):
        digest.update(file.name.encode())
        with open(file, "rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _decode_split(folder: Path, name: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    """What `read_split` says, from the files.

    Records are fetched by the thousand and decoded here, in half the time that
    tensorflow_datasets' own decoder takes.
    """
    import tensorflow_datasets as tfds
    from tensorflow_datasets.proto import tf_example_pb2

    shape = FORMS[name].image_shape
    raw = tfds.decode.DeserializeMethod.RAW_BYTES
    try:
        builder = tfds.builder_from_directory(folder)
        source = builder.as_data_source(split, deserialize_method=raw)
        images = np.empty((len(source), *shape), np.uint8)
        labels = np.empty(len(source), np.int32)
        for start in range(0, len(source), 1000):
            keys = range(start, min(start + 1000, len(source)))
            for i, record in zip(keys, source.__getitems__(keys), strict=True):
                feature = tf_example_pb2.Example.FromString(record).features.feature
                images[i] = _decode_png(feature["image"].bytes_list.value[0], shape)
                labels[i] = feature["label"].int64_list.value[0]
    except Exception as error:  # array_record, protobuf and PIL share no type of error
        raise UsageError(
            f"Cannot read {folder}/{name}-{split}.array_record* ({in_one_line(error)}); "
            f"delete {folder} and run `{command(name, str(folder.parents[1]))}` again."
        ) from error
    return images, labels


def in_one_line(error: Exception) -> str:
    """The type and message of an error that a library raised, without line breaks."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _decode_png(png: bytes, shape: tuple[int, int, int]) -> np.ndarray:
    """The pixels of a PNG, uint8 [H, W, C]."""
    from PIL import Image

    height, width, channels = shape
    with Image.open(io.BytesIO(png), formats=("PNG",)) as image:
        got, want = (image.size, image.mode), ((width, height), "L" if channels == 1 else "RGB")
        if got != want:
            raise ValueError(f"an image has size and mode {got}, expected {want}")
        return np.asarray(image).reshape(shape)


def _dataset_folder(name: str, data_dir: str) -> Path:
    return Path(data_dir).expanduser() / name


def _check_format(folder: Path, name: str) -> None:
    """Raises UsageError unless a prepared folder's files are array_record."""
    try:
        found = json.loads((folder / "dataset_info.json").read_text()).get("fileFormat", "tfrecord")
    except (ValueError, AttributeError) as error:
        raise UsageError(
            f"{folder}/dataset_info.json is not what tensorflow_datasets writes; delete {folder} "
            f"and run `{command(name, str(folder.parents[1]))}` again."
        ) from error
    if found != "array_record":
        raise UsageError(
            f"{folder} holds {found} files, which only TensorFlow reads; prepare {name} as "
            f"array_record in another folder: `{command(name, 'OTHER_FOLDER')}`."
        )
