"""Images of one's own: a folder for each class, or an .npz file.

    python -m cat_jax.main --config=cat_jax:mnist:cat_cw --config.dataset=own \
        --config.data_dir=PATH --config.num_validation=500 --workdir=runs/own

That is for grey images like MNIST's; for small photographs --config=cat_jax:preact_cifar10, with a
mean and std of each channel in config.classifier.

PATH is a folder with `train/CLASS/*.png` and `test/CLASS/*.png` in it (or .jpg, .jpeg, .bmp, .pgm,
.ppm; folders within a class are looked into), or with `CLASS/*.png`. Names of classes are sorted,
as numbers if all of them are numbers, and the first is class 0.

Or PATH is a file .npz with `x_train`, `y_train`, `x_test` and `y_test` in it (or `train_images`,
`train_labels`, ...; or `train_image`, `train_label`, ...), or with `x` and `y` (`images`, `labels`;
`image`, `label`). Images are [N, H, W], [N, H, W, 1] or [N, H, W, 3], uint8 or floats in [0, 1],
which are rounded to 8 bits. Labels are whole numbers from 0, or text. `class_names` is optional.

Without splits, one example in five of each class, always the same ones, is the test split.

Images are squares of one size, up to 128 pixels a side. SmallCNN, PreActResNet18, ResNet18 and
WideResNet take any; SmallMask even sides, ResNetMask multiples of 8, OnesMask any.
"""

import logging
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from cat_jax.data.records import in_one_line
from cat_jax.errors import UsageError

logger = logging.getLogger(__name__)
# (images uint8 [N, H, W, C], labels int32 [N]) by the name of the split; "all" is not split yet.
Splits = Mapping[str, tuple[np.ndarray, np.ndarray]]

MOST_CLASSES = 100_000  # Labels beyond are none: they would name as many classes.
LARGEST = 128  # Pixels a side: the networks are made for 28 to 32, and the cost goes with the area.
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".pgm", ".ppm")
MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB"}  # Of Pillow: what each is read as.
SPLIT_ARRAYS = (("x_{}", "y_{}"), ("{}_images", "{}_labels"), ("{}_image", "{}_label"))
WHOLE_ARRAYS = (("x", "y"), ("images", "labels"), ("image", "label"))


def read(path: Path) -> tuple[tuple[str, ...], Splits]:
    """The names of the classes, and the splits "train" and "test", or "all".

    Raises:
      UsageError: for what is not of the form above, or cannot be read.
    """
    try:
        if os.path.isdir(path):
            names, splits = _read_folder(path)
        elif path.suffix == ".npz" and os.path.isfile(path):
            names, splits = _read_arrays(path)
        else:
            raise UsageError(
                f"config.data_dir is {path}, which is neither a folder nor an .npz file; name one "
                "with images of your own: --config.data_dir=PATH."
            )
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error}; make it readable.") from error
    if len(names) < 2:
        raise UsageError(f"{path} has the one class {', '.join(names)}; expected two or more.")
    _, labels = splits.get("train") or splits["all"]
    if missing := set(range(len(names))) - set(labels.tolist()):
        some = sorted(names[i] for i in missing)[:5]
        raise UsageError(
            f"{path} has no training image of class {', '.join(some)}; expected some of each of "
            f"the {len(names)} classes, whose labels are 0 to {len(names) - 1}."
        )
    return names, splits


def check_size(what: str, height: int, width: int) -> None:
    """Raises UsageError unless that is the size of an image that can be trained on."""
    if height != width or height > LARGEST:
        raise UsageError(
            f"{what} is {height}x{width}; expected squares of at most {LARGEST} pixels a side. "
            "Crop and shrink all images first, each by PIL.ImageOps.fit(image, (32, 32))."
        )


def _read_folder(root: Path) -> tuple[tuple[str, ...], Splits]:
    found = [name for name in ("train", "test") if (root / name).is_dir()]
    if len(found) == 1:
        raise UsageError(
            f"{root} has a folder {found[0]} and not the other of train and test; make it, or put "
            f"the folders of the classes into {root} itself."
        )
    folders = {name: root / name for name in found} or {"all": root}
    classes = {name: _class_names(folder) for name, folder in folders.items()}
    names = classes[next(iter(folders))]
    for name, others in classes.items():
        if others != names:
            differing = ", ".join(sorted(set(others) ^ set(names))[:5])
            raise UsageError(f"{root}: train and {name} differ in the class {differing}; mend one.")
    files = {
        name: [(file, i) for i, each in enumerate(names) for file in _files(folder / each)]
        for name, folder in folders.items()
    }
    images = _read_images([file for some in files.values() for file, _ in some])
    ends = np.cumsum([len(some) for some in files.values()])
    parts = np.split(images, ends[:-1])
    labels = [np.array([label for _, label in some], np.int32) for some in files.values()]
    return names, dict(zip(files, zip(parts, labels, strict=True), strict=True))


def _class_names(folder: Path) -> tuple[str, ...]:
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not names:
        raise UsageError(f"{folder} has no folders; expected one of images for each class.")
    return tuple(sorted(names, key=int) if all(name.isdecimal() for name in names) else names)


def _files(folder: Path) -> list[Path]:
    """The images of a class, in the order of their names."""
    every = sorted(p for p in folder.rglob("[!.]*") if p.is_file())
    images = [file for file in every if file.suffix.lower() in SUFFIXES]
    others = [file.name for file in every if file.suffix.lower() not in SUFFIXES]
    expected = f"expected {', '.join(SUFFIXES)}"
    if not images:
        raise UsageError(f"{folder} has no image; {expected}.")
    if others:
        logger.warning("%s: %d files left out (%s); %s.", folder, len(others), others[0], expected)
    return images


def _read_images(files: Sequence[Path]) -> np.ndarray:
    """uint8 [N, H, W, C]; where some are in colour, grey ones are given three equal channels."""
    images: list[np.ndarray] = []
    for file in files:
        image = _read_image(file)
        if not images:
            check_size(str(file), *image.shape[:2])
        elif image.shape[:2] != images[0].shape[:2]:
            (height, width), first = image.shape[:2], "{}x{}".format(*images[0].shape[:2])
            raise UsageError(
                f"{file} is {height}x{width}, and {files[0]} is {first}; expected one size. "
                "Crop and shrink all images first, each by PIL.ImageOps.fit(image, (32, 32))."
            )
        images.append(image)
    channels = max(image.shape[2] for image in images)
    return np.stack([np.broadcast_to(image, (*image.shape[:2], channels)) for image in images])


def _read_image(file: Path) -> np.ndarray:
    """uint8 [H, W, 1] or [H, W, 3]."""
    from PIL import Image

    try:
        with Image.open(file) as image:
            mode = image.mode
            pixels = np.asarray(image.convert(MODES[mode])) if mode in MODES else None
    except Exception as error:  # Damaged images raise nearly any type.
        reason = in_one_line(error)
        raise UsageError(f"{file} cannot be read ({reason}); mend or delete it.") from error
    if pixels is None:
        raise UsageError(
            f"{file} is of mode {mode}; expected grey or RGB with 8 bits: save it anew after "
            'PIL.Image.open(file).convert("RGB").'
        )
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _read_arrays(file: Path) -> tuple[tuple[str, ...], Splits]:
    try:
        with np.load(file) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:  # Pickles are refused.
        raise UsageError(
            f"{file} cannot be read ({in_one_line(error)}); expected what numpy.savez writes, with "
            "arrays of numbers or text."
        ) from error
    pairs = _find_pairs(file, arrays)
    given = arrays.get("class_names")
    texts = [arrays[y] for _, y in pairs.values() if arrays[y].dtype.kind == "U"]
    if given is None and texts:
        given = np.unique(np.concatenate([labels.ravel() for labels in texts]))
    names = None if given is None else [str(name) for name in given.ravel()]
    splits = {}
    for name, (x, y) in pairs.items():
        images = _as_bytes(f"{x} of {file}", arrays[x])
        splits[name] = images, _as_labels(f"{y} of {file}", arrays[y], names)
    shapes = {images.shape[1:] for images, _ in splits.values()}
    if len(shapes) > 1:
        raise UsageError(f"{file} has images of the shapes {sorted(shapes)}; expected one shape.")
    if names is None:
        most = max(int(labels.max()) for _, labels in splits.values())
        names = [str(label) for label in range(most + 1)]
    return tuple(names), splits


def _find_pairs(file: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[str, str]]:
    """For each split the names of its images and its labels."""

    def candidates() -> Iterator[dict[str, tuple[str, str]]]:
        for x, y in SPLIT_ARRAYS:
            yield {name: (x.format(name), y.format(name)) for name in ("train", "test")}
        for x, y in WHOLE_ARRAYS:
            yield {"all": (x, y)}

    for pairs in candidates():
        used = {name for pair in pairs.values() for name in pair}
        if used <= arrays.keys():
            if rest := sorted(arrays.keys() - used - {"class_names"}):
                logger.warning("%s: arrays left out: %s.", file, ", ".join(rest))
            return pairs
    raise UsageError(
        f"{file} has the arrays {', '.join(arrays) or 'none'}; expected x_train, y_train, x_test "
        "and y_test, or train_images, train_labels, test_images and test_labels, or x and y."
    )


def _as_bytes(what: str, images: np.ndarray) -> np.ndarray:
    """uint8 [N, H, W, C]."""
    images = images[..., None] if images.ndim == 3 else images
    if images.ndim != 4 or images.shape[-1] not in (1, 3) or 0 in images.shape:
        raise UsageError(
            f"{what} has the shape {list(images.shape)}; expected [N, H, W], [N, H, W, 1] or "
            "[N, H, W, 3]: channels are last, as after numpy.moveaxis(images, 1, -1)."
        )
    check_size(f"An image in {what}", *images.shape[1:3])
    if images.dtype == np.uint8:
        return images
    if not np.issubdtype(images.dtype, np.floating):
        raise UsageError(
            f"{what} is {images.dtype}; expected uint8 in 0..255, or floats in [0, 1]: "
            "images.astype(numpy.uint8)."
        )
    low, high = float(images.min()), float(images.max())
    if not (low >= 0.0 and high <= 1.0):
        raise UsageError(
            f"{what} has values from {low:.4g} to {high:.4g}; expected [0, 1], or uint8: divide by "
            "255, or undo the normalisation, which is config.classifier.mean and std here."
        )
    levels = np.rint(255 * images)
    if (change := float(np.max(np.abs(levels - 255 * images)))) > 0.01:
        logger.warning("%s is rounded to 8 bits, by up to %.2f/255.", what, change)
    return levels.astype(np.uint8)


def _as_labels(what: str, labels: np.ndarray, names: Sequence[str] | None) -> np.ndarray:
    """int32 [N]."""
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.dtype.kind == "U" and labels.ndim == 1:
        index = {name: i for i, name in enumerate(names or ())}
        unknown = sorted({str(label) for label in labels} - index.keys())
        if unknown:
            raise UsageError(f"{what} has {unknown[0]!r}, which is not among class_names; add it.")
        return np.array([index[str(label)] for label in labels], np.int32)
    numbers = labels.ndim == 1 and labels.dtype.kind in "iu" and labels.size > 0
    if not (numbers and 0 <= labels.min() and labels.max() < MOST_CLASSES):
        raise UsageError(
            f"{what} is {labels.dtype} of shape {list(labels.shape)}; expected whole numbers from "
            "0 to the number of classes less 1, or text, one for each image: of one-hot rows, "
            "numpy.argmax(labels, -1)."
        )
    return labels.astype(np.int32)
