"""Published archives of a data set: verified, prepared once as one .npz file, and loaded from it.

A folder that tensorflow_datasets has prepared serves as well: see `tfds_folder`.
"""

import dataclasses
import hashlib
import os
import shlex
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cat_jax.data import tfds_folder
from cat_jax.data.splits import Loaded, Split
from cat_jax.errors import UsageError, in_one_line
from cat_jax.storage import files
from cat_jax.storage.paths import local_path

ENVIRONMENT, DATA_DIR = "CAT_JAX_DATA", "~/tensorflow_datasets"


@dataclasses.dataclass(frozen=True)
class Archives:
    """What is known of the archives of a data set.

    Attributes:
      name: name of the data set, the same in tensorflow_datasets.
      image_shape: (H, W, C).
      num_classes: K.
      homepage: where the archives are published.
      checksums: file name -> MD5, as published.
      read: folder of the archives -> {"train": ..., "test": ...} in their own order. Whatever it
        raises means that they cannot be read.
    """

    name: str
    image_shape: tuple[int, int, int]
    num_classes: int
    homepage: str
    checksums: Mapping[str, str]
    read: Callable[[Path], dict[str, Split]]

    def load(self, data_dir: str = "") -> Loaded:
        """The prepared data set; labels are numbers.

        Args:
          data_dir: folder of prepared data sets; "" for the default of `folder_of`.

        Raises:
          UsageError: if it is not prepared, or damaged; it names the command that prepares it.
        """
        folder = folder_of(data_dir)
        names = tuple(map(str, range(self.num_classes)))
        if (file := self.file(folder)).exists():
            return names, *_read_npz(file, self.command(folder))
        prepared = tfds_folder.find(folder / self.name, self.command(folder))
        if prepared is None:
            raise UsageError(
                f"{self.name} is not prepared: {folder} has neither {self.name}.npz nor "
                f"{self.name}/<version>/dataset_info.json. Name the folder that has it "
                f"(--config.data_dir, or {ENVIRONMENT} in the environment); or run "
                f"`{self.command(folder)}` with --source=FOLDER to read the original archives, or "
                "without to let tfds download them by TensorFlow (the extra `prepare`)."
            )
        train, test = (
            Split(*tfds_folder.read(prepared, split, self.image_shape, self.command(folder)))
            for split in ("train", "test")
        )
        return names, train, test

    def find(self, data_dir: str = "") -> Path | None:
        """The file or folder of the prepared data set; None if it is not prepared."""
        folder = folder_of(data_dir)
        if (file := self.file(folder)).exists():
            return file
        return tfds_folder.find(folder / self.name, self.command(folder))

    def write(
        self, source: Path, data_dir: str, checksums: Mapping[str, str] | None = None
    ) -> Path:
        """Reads the archives in `source` and writes the file that `load` reads.

        Examples have tensorflow_datasets' order, so that both ways of preparing a data set give
        the same fingerprint and the same batches.

        Args:
          source: folder with the published archives.
          data_dir: folder of prepared data sets, as for `load`.
          checksums: MD5 by file name in place of the published ones.

        Raises:
          UsageError: if an archive is missing, is not the published one, or cannot be read; or if
            the file cannot be written.
        """
        path = self.file(folder_of(data_dir))
        files.check_writable(path.parent, "data_dir")
        for file, md5 in self.checksums.items():
            _verify(source / file, (checksums or {}).get(file, md5), self.homepage)
        try:
            splits = self.read(source)
        except (
            Exception
        ) as error:  # A file that is no archive, or no pickle, raises nearly any type.
            raise UsageError(
                f"The archives of {self.name} in {source} cannot be read: {in_one_line(error)}."
            ) from error
        arrays: dict[str, np.ndarray] = {}
        for name, split in splits.items():
            ordered = split.take(tfds_order(name, len(split.labels)))
            arrays |= {f"{name}_images": ordered.images}
            arrays |= {f"{name}_labels": ordered.labels.astype(np.int32)}
        try:
            with files.replacing(path) as temporary, open(temporary, "wb") as stream:
                np.savez(stream, **dict[str, Any](arrays))
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {in_one_line(error)}.") from error
        return path

    def file(self, folder: Path) -> Path:
        """Where the prepared data set lies in a folder of data sets."""
        return folder / f"{self.name}.npz"

    def command(self, folder: Path) -> str:
        """The shell command that prepares the data set."""
        return f"python -m cat_jax.data --dataset={self.name} --data_dir={shlex.quote(str(folder))}"


def folder_of(data_dir: str) -> Path:
    """The folder of prepared data sets; of "", CAT_JAX_DATA or else ~/tensorflow_datasets.

    Raises:
      UsageError: for an address of a remote system.
    """
    if not data_dir and (folder := os.environ.get(ENVIRONMENT)):
        return local_path(folder, ENVIRONMENT)
    return local_path(data_dir or DATA_DIR, "data_dir")


def tfds_order(split: str, num_examples: int) -> np.ndarray:
    """Indices that sort a split as tensorflow_datasets stores it: by a salted hash."""
    digests = [hashlib.md5(f"{split}{i}".encode()).digest() for i in range(num_examples)]
    return np.array(sorted(range(num_examples), key=digests.__getitem__))


def _verify(path: Path, md5: str, homepage: str) -> None:
    """Raises UsageError unless the file is there and has this MD5."""
    if not path.is_file():
        raise UsageError(f"{path} is missing; download {path.name} from {homepage}.")
    with path.open("rb") as file:
        got = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if got != md5:
        raise UsageError(f"{path} has MD5 {got}, expected {md5}; fetch it again from {homepage}.")


def _read_npz(file: Path, command: str) -> tuple[Split, Split]:
    try:
        with open(file, "rb") as stream, np.load(stream) as arrays:
            train, test = (
                Split(arrays[f"{split}_images"], arrays[f"{split}_labels"])
                for split in ("train", "test")
            )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"{file} cannot be read ({in_one_line(error)}); move it away and run `{command}`."
        ) from error
    return train, test
