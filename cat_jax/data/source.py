"""The record of a data set, and data sets by name.

The file of a data set registers its record. So do modules of users.
"""

import dataclasses
import functools
import os
from collections.abc import Callable

import numpy as np

from cat_jax.data import tfds_datasets
from cat_jax.data.archives import Archives
from cat_jax.data.splits import Dataset, Loaded, Spec, Split, fingerprint
from cat_jax.errors import UsageError
from cat_jax.runtime.registry import Record, find, records_of, register


@dataclasses.dataclass(frozen=True)
class Source(Record):
    """A data set by name.

    Attributes:
      name: value of config.dataset.
      load: data_dir, "" if none is given -> (names of the classes, train, test): uint8 images
        [N, H, W, C] and int32 labels [N] from 0.
      archives: published files that `python -m cat_jax.data` prepares; None if there are none.
      num_train, num_test: sizes of the published splits; 0 if they vary.
      mean, std: constants of each channel, on the [0, 1] scale, of published networks.
    """

    load: Callable[[str], Loaded]
    archives: Archives | None = None
    num_train: int = 0
    num_test: int = 0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


def load(name: str, data_dir: str = "") -> Dataset:
    """The data set of a name.

    Args:
      name: name of a registered data set, such as "digits" or "cifar10", or "tfds:NAME" for one
        that tensorflow_datasets has prepared in data_dir.
      data_dir: folder of prepared data sets, by default the one that the environment variable
        CAT_JAX_DATA names, or else ~/tensorflow_datasets. For `own`, the images themselves.

    Raises:
      UsageError: if the name is unknown, or the data are absent or have another form.
    """
    if name not in records_of(Source) and os.path.exists(name):
        raise UsageError(
            f"config.dataset is {name!r}, a path; for your images write "
            f"--config.dataset=own --config.data_dir={name}"
        )
    class_names, train, test = find_source(name).load(data_dir)
    for split, examples in (("train", train), ("test", test)):
        check_split(f"{name}'s {split} split", examples, len(class_names))
    return Dataset(name, tuple(class_names), train, test, fingerprint(train, test))


def spec(name: str, data_dir: str = "") -> Spec:
    """The shapes of a data set; reads its files only if they are not published.

    Args:
      name, data_dir: as for `load`.

    Raises:
      UsageError: as `load` does, if it reads files.
    """
    source = find_source(name)
    if source.archives is None:
        return load(name, data_dir).spec
    return Spec(source.archives.image_shape, source.archives.num_classes, source.num_train)


def find_source(name: str) -> Source:
    """The record of a data set, of "tfds:NAME" too.

    Raises:
      UsageError: if there is none.
    """
    if name.startswith(tfds_datasets.PREFIX) and name not in records_of(Source):
        read = functools.partial(tfds_datasets.load, name.removeprefix(tfds_datasets.PREFIX))
        register(Source(name, read))
    return find(Source, "config.dataset", name)


def check_split(name: str, split: Split, num_classes: int) -> None:
    """Raises UsageError unless the arrays have the types, shapes and range that `Split` states."""
    images, labels = split
    if images.dtype != np.uint8 or images.ndim != 4 or labels.dtype != np.int32:
        raise UsageError(
            f"{name} has {images.dtype} images of shape {list(images.shape)} and {labels.dtype} "
            "labels; expected uint8 [N, H, W, C] and int32."
        )
    if labels.shape != (len(images),) or not len(images):
        raise UsageError(
            f"{name} has {len(images)} images and labels of shape {list(labels.shape)}; "
            "expected one label for each image, and at least one."
        )
    if labels.min() < 0 or labels.max() >= num_classes:
        raise UsageError(
            f"{name} has labels from {labels.min()} to {labels.max()}; "
            f"expected 0 to {num_classes - 1}."
        )
