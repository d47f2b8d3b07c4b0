"""The user's images: a folder for each class, or an .npz file.

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
which are rounded to 8 bits. Labels are integers from 0, or text. `class_names` is optional.

Without splits, one example in five of each class, always the same ones, is the test split.

Images are squares of one size, up to 128 pixels a side. SmallCNN, PreActResNet18, ResNet18 and
WideResNet take any; SmallMask even sides, ResNetMask multiples of 8, OnesMask any.
"""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cat_jax.data.own_archive import read_archive
from cat_jax.data.pixel_checks import Splits, check_levels, check_size
from cat_jax.data.source import Source, check_split
from cat_jax.data.splits import Loaded, Split, split_test
from cat_jax.errors import UsageError, in_one_line
from cat_jax.runtime.registry import register
from cat_jax.storage.paths import local_path

logger = logging.getLogger(__name__)
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".pgm", ".ppm")
EIGHT_BITS = 'save it again after PIL.Image.open(file).convert("RGB")'
# Because Pillow's `convert` clips or wraps values above 255.
SIXTEEN_BITS = (
    "save PIL.Image.fromarray(numpy.uint8(numpy.asarray(image) / 257)) for pixels in 0..65535"
)
MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB"}  # Of Pillow: what each is read as.


def read(path: Path) -> tuple[tuple[str, ...], Splits]:
    """The names of the classes, and the splits "train" and "test", or "all".

    Raises:
      UsageError: if the files do not have the form above, or cannot be read.
    """
    try:
        if os.path.isdir(path):
            names, splits = _read_folder(path)
        elif path.suffix == ".npz" and os.path.isfile(path):
            names, splits = read_archive(path)
        else:
            raise UsageError(
                f"config.data_dir is {path}, which is neither a folder nor an .npz file; name one "
                "with your images: --config.data_dir=PATH."
            )
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error}; make it readable.") from error
    if len(names) < 2:
        raise UsageError(f"{path} has the one class {', '.join(names)}; expected two or more.")
    _, labels = splits.get("train") or splits["all"]
    if missing := set(range(len(names))) - set(labels.tolist()):
        absent = sorted(names[i] for i in missing)[:5]
        raise UsageError(
            f"{path} has no training image of class {', '.join(absent)}; expected some of each of "
            f"the {len(names)} classes, whose labels are 0 to {len(names) - 1}."
        )
    check_levels(str(path), splits)
    return names, splits


def _read_folder(root: Path) -> tuple[tuple[str, ...], Splits]:
    parts = [name for name in ("train", "test") if (root / name).is_dir()]
    if len(parts) == 1:
        raise UsageError(
            f"{root} has only one of train and test, {parts[0]}; create the other one, or put "
            f"the folders of the classes into {root} itself."
        )
    folders = {name: root / name for name in parts} or {"all": root}
    classes = {name: _class_names(folder) for name, folder in folders.items()}
    names = classes[next(iter(folders))]
    for name, class_names in classes.items():
        if class_names != names:
            differing = ", ".join(sorted(set(class_names) ^ set(names))[:5])
            raise UsageError(
                f"{root}: train and {name} differ in the class {differing}; correct one."
            )
    files = {
        name: [(file, i) for i, label in enumerate(names) for file in _files(folder / label)]
        for name, folder in folders.items()
    }
    images = _read_images([file for pairs in files.values() for file, _ in pairs])
    ends = np.cumsum([len(pairs) for pairs in files.values()])
    labels = [np.array([label for _, label in pairs], np.int32) for pairs in files.values()]
    splits = zip(np.split(images, ends[:-1]), labels, strict=True)
    return names, dict(zip(files, splits, strict=True))


def _class_names(folder: Path) -> tuple[str, ...]:
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not names:
        raise UsageError(f"{folder} has no folders; expected one of images for each class.")
    return tuple(sorted(names, key=int) if all(name.isdecimal() for name in names) else names)


def _files(folder: Path) -> list[Path]:
    """The images of a class, in the order of their names."""
    files = sorted(p for p in folder.rglob("[!.]*") if p.is_file())
    images = [file for file in files if file.suffix.lower() in SUFFIXES]
    ignored = [file.name for file in files if file.suffix.lower() not in SUFFIXES]
    expected = f"expected {', '.join(SUFFIXES)}"
    if not images:
        raise UsageError(f"{folder} has no image; {expected}.")
    if ignored:
        logger.warning("%s: %d files ignored (%s); %s.", folder, len(ignored), ignored[0], expected)
    return images


def _read_images(files: Sequence[Path]) -> np.ndarray:
    """uint8 [N, H, W, C]; beside colour images, grey ones get three equal channels."""
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
        raise UsageError(f"{file} cannot be read ({reason}); repair or delete it.") from error
    if pixels is None:
        remedy = SIXTEEN_BITS if mode.startswith(("I", "F")) else EIGHT_BITS
        raise UsageError(f"{file} has mode {mode}; expected grey or RGB with 8 bits: {remedy}.")
    return pixels[..., None] if pixels.ndim == 2 else pixels


def load(data_dir: str) -> Loaded:
    """The user's images; without a test split, one in five of each class becomes the test split.

    Raises:
      UsageError: if there is no path, or `read` refuses its files.
    """
    if not data_dir:
        raise UsageError("config.data_dir is empty; name your images: --config.data_dir=PATH.")
    names, splits = read(local_path(data_dir, "config.data_dir"))
    if "test" in splits:
        return names, Split(*splits["train"]), Split(*splits["test"])
    examples = Split(*splits["all"])
    check_split(data_dir, examples, len(names))
    if (least := np.bincount(examples.labels).min()) < 2:
        raise UsageError(
            f"{data_dir} has a class with {least} image, and no test split; expected two or more."
        )
    return names, *split_test(examples, lambda size: max(1, size // 5))


register(Source("own", load))
