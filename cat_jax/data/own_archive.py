"""Images and labels of the user, from an .npz file."""

import logging
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from cat_jax.data.pixel_checks import Splits, check_size, to_bytes
from cat_jax.errors import UsageError, in_one_line

logger = logging.getLogger(__name__)
MAX_CLASSES = 100_000  # Larger labels are a mistake: they would name as many classes.
SPLIT_ARRAYS = (("x_{}", "y_{}"), ("{}_images", "{}_labels"), ("{}_image", "{}_label"))
UNSPLIT_ARRAYS = (("x", "y"), ("images", "labels"), ("image", "label"))


def read_archive(file: Path) -> tuple[tuple[str, ...], Splits]:
    """The names of the classes, and the splits "train" and "test", or "all".

    Raises:
      UsageError: if the arrays do not have the form that `own.py` describes.
    """
    try:
        with np.load(file) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:  # Pickles are refused.
        raise UsageError(
            f"{file} cannot be read ({in_one_line(error)}); expected a file of numpy.savez with "
            "arrays of numbers or text."
        ) from error
    pairs = _find_pairs(file, arrays)
    class_names = arrays.get("class_names")
    texts = [arrays[y] for _, y in pairs.values() if arrays[y].dtype.kind == "U"]
    if class_names is None and texts:
        class_names = np.unique(np.concatenate([labels.ravel() for labels in texts]))
    names = None if class_names is None else [str(name) for name in class_names.ravel()]
    splits = {}
    for name, (x, y) in pairs.items():
        images = _as_bytes(f"{x} of {file}", arrays[x])
        splits[name] = images, _as_labels(f"{y} of {file}", arrays[y], names)
    shapes = {images.shape[1:] for images, _ in splits.values()}
    if len(shapes) > 1:
        raise UsageError(f"{file} has images of the shapes {sorted(shapes)}; expected one shape.")
    if names is None:
        largest = max(int(labels.max()) for _, labels in splits.values())
        names = [str(label) for label in range(largest + 1)]
    return tuple(names), splits


def _find_pairs(file: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[str, str]]:
    """For each split the names of its images and its labels."""

    def candidates() -> Iterator[dict[str, tuple[str, str]]]:
        for x, y in SPLIT_ARRAYS:
            yield {name: (x.format(name), y.format(name)) for name in ("train", "test")}
        for x, y in UNSPLIT_ARRAYS:
            yield {"all": (x, y)}

    for pairs in candidates():
        required = {name for pair in pairs.values() for name in pair}
        if required <= arrays.keys():
            if rest := sorted(arrays.keys() - required - {"class_names"}):
                logger.warning("%s: these arrays are not read: %s.", file, ", ".join(rest))
            return pairs
    raise UsageError(
        f"{file} has the arrays {', '.join(arrays) or 'none'}; expected x_train, y_train, x_test "
        "and y_test, or train_images, train_labels, test_images and test_labels, or x and y."
    )


def _as_bytes(name: str, images: np.ndarray) -> np.ndarray:
    """uint8 [N, H, W, C]."""
    images = images[..., None] if images.ndim == 3 else images
    if images.ndim != 4 or images.shape[-1] not in (1, 3) or 0 in images.shape:
        raise UsageError(
            f"{name} has the shape {list(images.shape)}; expected [N, H, W], [N, H, W, 1] or "
            "[N, H, W, 3]: channels are last, as after numpy.moveaxis(images, 1, -1)."
        )
    check_size(f"An image in {name}", *images.shape[1:3])
    return to_bytes(name, images)


def _as_labels(array: str, labels: np.ndarray, names: Sequence[str] | None) -> np.ndarray:
    """int32 [N]."""
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.dtype.kind == "U" and labels.ndim == 1:
        index = {name: i for i, name in enumerate(names or ())}
        unknown = sorted({str(label) for label in labels} - index.keys())
        if unknown:
            raise UsageError(f"{array} has {unknown[0]!r}, which is not among class_names; add it.")
        return np.array([index[str(label)] for label in labels], np.int32)
    numbers = labels.ndim == 1 and labels.dtype.kind in "iu" and labels.size > 0
    if not (numbers and 0 <= labels.min() and labels.max() < MAX_CLASSES):
        raise UsageError(
            f"{array} is {labels.dtype} of shape {list(labels.shape)}; expected whole numbers from "
            "0 to the number of classes less 1, or text, one for each image; convert one-hot "
            "rows by numpy.argmax(labels, -1)."
        )
    return labels.astype(np.int32)
