"""One-time preparation of a data set: its published archives become a folder that `load` reads."""

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cat_jax.data import archives, records
from cat_jax.data.sources import DATA_DIR
from cat_jax.errors import UsageError


def prepare(
    dataset: str,
    data_dir: str = DATA_DIR,
    source: str | None = None,
    checksums: Mapping[str, str] | None = None,
) -> Path:
    """The folder of the prepared data set, which is written unless it is there already.

    Both ways give the same examples in the same order, hence the same fingerprint.

    Args:
      dataset: mnist, cifar10 or cifar100.
      data_dir: where prepared data sets are kept; ~ is expanded.
      source: a folder with the original archives, which are read without TensorFlow. None:
        tensorflow_datasets downloads them, and needs TensorFlow to do so.
      checksums: MD5 by file name in place of the published ones; only with `source`.

    Raises:
      UsageError: if there is nothing to prepare, or it cannot be done; it names the remedy.
    """
    if dataset not in records.FORMS:
        raise UsageError(
            f"dataset {dataset!r} needs no preparation or is unknown; "
            f"available: {', '.join(records.FORMS)}"
        )
    folder = records.find_folder(dataset, data_dir)
    if folder is not None:
        return folder
    if source is None:
        _download(dataset, data_dir)
        return records.require_folder(dataset, data_dir)
    splits = archives.read_archives(dataset, Path(source).expanduser(), checksums)
    folder = Path(data_dir).expanduser() / dataset / records.FORMS[dataset].version
    _write_at_once(folder, dataset, splits)
    return folder


def _write_at_once(folder: Path, name: str, splits: Mapping[str, archives.Columns]) -> None:
    """Writes a folder that is either complete or not there, whenever the process is stopped."""
    unfinished = folder.with_name(f".unfinished-{folder.name}-{os.getpid()}")
    unfinished.mkdir(parents=True)
    try:
        _write_folder(unfinished, name, splits)
        unfinished.rename(folder)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {records.in_one_line(error)}.") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _write_folder(folder: Path, name: str, splits: Mapping[str, archives.Columns]) -> None:
    """Fills an empty folder with what `load` and tensorflow_datasets can read.

    Args:
      folder: `<data_dir>/<name>/<version>`, or what will be renamed to it.
      name: of the data set.
      splits: for each split the columns that `records.FORMS[name]` names.
    """
    import tensorflow_datasets as tfds

    form = records.FORMS[name]
    features = _features(form)
    infos = [_write_split(folder, name, s, columns, features) for s, columns in splits.items()]
    tfds.folder_dataset.write_metadata(
        data_dir=folder,
        features=features,
        split_infos=infos,
        version=form.version,
        homepage=form.homepage,
        supervised_keys=("image", "label"),
        check_data=False,
    )


def _write_split(
    folder: Path, name: str, split: str, columns: archives.Columns, features: Any
) -> Any:
    """Writes one split's file; returns its `tfds.core.SplitInfo`."""
    import tensorflow_datasets as tfds
    from array_record.python.array_record_module import ArrayRecordWriter
    from PIL import Image

    template = tfds.core.ShardedFileTemplate(
        data_dir=folder, dataset_name=name, split=split, filetype_suffix="array_record"
    )
    writer = ArrayRecordWriter(
        str(template.sharded_filepath(shard_index=0, num_shards=1)), "group_size:1"
    )
    num_bytes = 0
    for values in zip(*columns.values(), strict=True):
        example = dict(zip(columns, values, strict=True))
        pixels = example["image"]
        example["image"] = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
        record = features.serialize_example(features.encode_example(example))
        num_bytes += len(record)
        writer.write(record)
    writer.close()
    return tfds.core.SplitInfo(
        name=split,
        shard_lengths=[len(columns["image"])],
        num_bytes=num_bytes,
        filename_template=template,
    )


def _features(form: records.Form) -> Any:
    """The `tfds.features.FeaturesDict` of a form."""
    import tensorflow_datasets as tfds

    columns = {"image": tfds.features.Image(shape=form.image_shape)}
    for column, num_classes in form.classes.items():
        columns[column] = tfds.features.ClassLabel(num_classes=num_classes)
    if form.has_id:
        columns["id"] = tfds.features.Text()
    return tfds.features.FeaturesDict(columns)


def _download(name: str, data_dir: str) -> None:
    """Lets tensorflow_datasets download a data set and write it as array_record."""
    by_hand = (
        f"give --source=FOLDER with the archives from {records.FORMS[name].homepage} "
        f"({', '.join(archives.CHECKSUMS[name])})."
    )
    if importlib.util.find_spec("tensorflow") is None:
        raise UsageError(
            f"To download {name}, tfds needs TensorFlow, which is not installed; run "
            f"`pip install 'cat_jax[prepare]'`, or {by_hand}"
        )
    import tensorflow_datasets as tfds

    where = str(Path(data_dir).expanduser())
    try:
        builder = tfds.builder(name, data_dir=where, file_format="array_record")
        builder.download_and_prepare()
    except Exception as error:  # from sockets to protobuf, there is no common type
        reason = records.in_one_line(error)
        raise UsageError(f"tfds could not prepare {name} ({reason}); {by_hand}") from error
