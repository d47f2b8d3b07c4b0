"""Prepares a data set once: from its published archives, or by tensorflow_datasets."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from cat_jax.data import tfds_datasets, tfds_folder
from cat_jax.data.archives import Archives, folder_of
from cat_jax.data.source import Source
from cat_jax.errors import UsageError, in_one_line
from cat_jax.runtime.registry import records_of
from cat_jax.storage.paths import local_path


def preparable() -> dict[str, Archives]:
    """The data sets with published archives, by name."""
    return {name: s.archives for name, s in records_of(Source).items() if s.archives}


def prepare(
    dataset: str,
    data_dir: str = "",
    source: str | None = None,
    checksums: Mapping[str, str] | None = None,
) -> Path:
    """The file or folder of the prepared data set; writes it unless it is there already.

    Both ways give the same examples in the same order, hence the same fingerprint.

    Args:
      dataset: name of a data set with published archives, such as "cifar10", or "tfds:NAME".
      data_dir: folder of prepared data sets; "" for the default of `data.load`.
      source: folder with the original archives, which become one .npz file. None:
        tensorflow_datasets downloads them into its own kind of folder, and needs TensorFlow.
      checksums: MD5 by file name in place of the published ones; only with `source`.

    Raises:
      UsageError: if there is nothing to prepare, or it fails; it names the remedy.
    """
    if dataset.startswith(tfds_datasets.PREFIX):
        return _prepare_by_tfds(dataset.removeprefix(tfds_datasets.PREFIX), data_dir, source)
    archived = preparable()
    if dataset not in archived:
        raise UsageError(
            f"dataset {dataset!r} needs no preparation or is unknown; available: "
            f"{', '.join(archived)}, and tfds:NAME"
        )
    archives = archived[dataset]
    if path := archives.find(data_dir):
        return path
    if source is not None:
        return archives.write(local_path(source, "--source"), data_dir, checksums)
    _download(archives.name, folder_of(data_dir), _by_hand(archives))
    if path := archives.find(data_dir):
        return path
    raise UsageError(f"tfds wrote no {dataset} in {folder_of(data_dir)}; {_by_hand(archives)}")


def find(dataset: str, data_dir: str = "") -> Path | None:
    """The file or folder of a prepared data set; None if it is not prepared, or unknown."""
    if dataset.startswith(tfds_datasets.PREFIX):
        name, folder = dataset.removeprefix(tfds_datasets.PREFIX), folder_of(data_dir)
        return tfds_folder.find(folder / name, tfds_datasets.command(name, folder))
    archives = preparable().get(dataset)
    return archives.find(data_dir) if archives else None


def _prepare_by_tfds(name: str, data_dir: str, source: str | None) -> Path:
    if source is not None:
        raise UsageError(f"tfds:{name} has no archives to read; leave --source out.")
    folder = folder_of(data_dir)
    if path := find(f"{tfds_datasets.PREFIX}{name}", data_dir):
        return path
    _download(name, folder, "see tensorflow_datasets' page of this data set.")
    if path := find(f"{tfds_datasets.PREFIX}{name}", data_dir):
        return path
    raise UsageError(f"tfds wrote no {name} in {folder}; check the name.")


def _download(name: str, folder: Path, remedy: str) -> None:
    """Lets tensorflow_datasets download a data set and write it as array_record."""
    if importlib.util.find_spec("tensorflow") is None:
        raise UsageError(
            f"To download {name}, tfds needs TensorFlow, which is not installed; run "
            f"`pip install 'cat_jax[prepare]'`, or {remedy}"
        )
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder(name, data_dir=str(folder), file_format="array_record")
        builder.download_and_prepare()
    except Exception as error:  # From sockets to protobuf, there is no common type.
        raise UsageError(
            f"tfds could not prepare {name} ({in_one_line(error)}); {remedy}"
        ) from error


def _by_hand(archives: Archives) -> str:
    names = ", ".join(archives.checksums)
    return f"give --source=FOLDER with the archives from {archives.homepage} ({names})."
