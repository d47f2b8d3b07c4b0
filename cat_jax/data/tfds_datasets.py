"""`tfds:NAME`: any data set of square images that tensorflow_datasets has prepared in a folder.

    python -m cat_jax.data --dataset=tfds:svhn_cropped
    python -m cat_jax.main --config=cat_jax:svhn --config.dataset=tfds:svhn_cropped ...

The first command needs TensorFlow, once; training does not. The name may have a config, as in
`tfds:imagenet_resized/64x64`. The data set has the features `image` and `label`. Its split `test`
is the test split, or else `validation`; without both, one example in five of each class, always
the same ones.
"""

import json
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from cat_jax.data import tfds_folder
from cat_jax.data.archives import ENVIRONMENT, folder_of
from cat_jax.data.pixel_checks import check_size
from cat_jax.data.splits import Loaded, Split, split_test
from cat_jax.errors import UsageError

PREFIX = "tfds:"
TEST_SPLITS = ("test", "validation")


class Form(NamedTuple):
    """Shapes, classes and splits of a prepared folder."""

    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    splits: tuple[str, ...]


def load(name: str, data_dir: str = "") -> Loaded:
    """The data set of a name without the prefix, such as "svhn_cropped".

    Raises:
      UsageError: if it is not prepared, is damaged, or has no square images with labels.
    """
    folder = folder_of(data_dir)
    again = command(name, folder)
    prepared = tfds_folder.find(folder / name, again)
    if prepared is None:
        raise UsageError(
            f"{PREFIX}{name} is not prepared: {folder} has no {name}/<version>/dataset_info.json. "
            f"Name the folder that has it (--config.data_dir, or {ENVIRONMENT} in the "
            f"environment), or run `{again}`, which needs TensorFlow (the extra `prepare`)."
        )
    form = read_form(prepared, again)
    check_size(f"An image of {PREFIX}{name}", *form.image_shape[:2])

    def read(split: str) -> Split:
        return Split(*tfds_folder.read(prepared, split, form.image_shape, again))

    train = read("train")
    tests = [split for split in TEST_SPLITS if split in form.splits]
    train, test = (train, read(tests[0])) if tests else split_test(train, lambda size: size // 5)
    return form.class_names, train, test


def command(name: str, folder: Path) -> str:
    """The shell command that prepares the data set."""
    dataset = shlex.quote(f"{PREFIX}{name}")
    return f"python -m cat_jax.data --dataset={dataset} --data_dir={shlex.quote(str(folder))}"


def read_form(prepared: Path, again: str) -> Form:
    """What the files beside the images state.

    Args:
      prepared: path that `tfds_folder.find` returned.
      again: shell command that prepares the data set, for errors.

    Raises:
      UsageError: for a data set without images of one size and labels.
    """
    try:
        features = json.loads((prepared / "features.json").read_text())["featuresDict"]["features"]
        info = json.loads((prepared / "dataset_info.json").read_text())
        splits = tuple(split["name"] for split in info["splits"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{prepared} is not what tensorflow_datasets writes; delete it and run `{again}`."
        ) from error
    image, label = (features.get(name, {}) for name in ("image", "label"))
    shape = [int(side) for side in image.get("image", {}).get("shape", {}).get("dimensions", [])]
    classes = int(label.get("classLabel", {}).get("numClasses", 0))
    if len(shape) != 3 or min(shape) < 1 or shape[-1] not in (1, 3) or classes < 2:
        raise UsageError(
            f"{prepared} has the features {', '.join(features)}, images of shape {shape} and "
            f"{classes} classes; expected `image` of one size, with 1 or 3 channels, and `label`."
        )
    if "train" not in splits:
        raise UsageError(f"{prepared} has the splits {', '.join(splits)}; expected train.")
    height, width, channels = shape
    return Form((height, width, channels), _class_names(prepared, classes), splits)


def _class_names(prepared: Path, classes: int) -> tuple[str, ...]:
    """Names of the classes, or their numbers if the folder does not have them."""
    file: Any = prepared / "label.labels.txt"
    names = tuple(file.read_text().split("\n")) if file.is_file() else ()
    names = tuple(name for name in names if name)
    return names if len(names) == classes else tuple(map(str, range(classes)))
