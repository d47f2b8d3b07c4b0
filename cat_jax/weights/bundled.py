"""The robust networks that cat_jax brings with it.

    from cat_jax import weights

    loaded = weights.load("digits_cat_cent")

`python -m cat_jax.weights` lists them. Beside each file is its model card, with the data, the
method, the complete config and every accuracy.
"""

import pathlib
from collections.abc import Iterator
from typing import Any

from cat_jax.errors import UsageError
from cat_jax.weights import weight_files
from cat_jax.weights.weight_files import ANY

FOLDER = pathlib.Path(__file__).parent / "models"
CARD = ".safetensors.md"


def names() -> list[str]:
    """The names of the classifiers, each of which has a model card."""
    return sorted(path.name.removesuffix(CARD) for path in FOLDER.glob(f"*{CARD}"))


def file_of(text: str | pathlib.Path) -> pathlib.Path | None:
    """The file of a classifier, or of its mask network (NAME_mask_net); None for paths.

    Raises:
      UsageError: for another name that is no path of anything.
    """
    name = str(text)
    if pathlib.PurePath(name).suffix or not name.isidentifier() or pathlib.Path(name).exists():
        return None
    file = FOLDER / f"{name}.safetensors"
    if not file.exists():
        raise UsageError(
            f"{name} is neither a file of weights nor one of the networks of cat_jax: "
            f"{', '.join(names())}."
        )
    return file


def descriptions() -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, description) of each network; the keys of a description: `weight_files.Part.about`."""
    for name in names():
        yield name, weight_files.read(FOLDER / f"{name}.safetensors")[ANY].about
