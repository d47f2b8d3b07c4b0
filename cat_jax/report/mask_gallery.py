"""Test images beside their perturbation, their mask and the calibrated perturbation."""

import io
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.image import imsave

from cat_jax.experiment import labels

VIEWS = ("natural", "adversarial", "mask", "calibrated")  # The images in masks.npz.
CLASSIFIED_COLUMNS = (0, 2, 5)  # Of the natural, the adversarial and the calibrated image.


class Tile(NamedTuple):
    """One small image.

    Attributes:
      png: the image.
      text: text below it: the predicted class, or a mean.
      is_wrong: whether the predicted class is wrong.
    """

    png: bytes
    text: str = ""
    is_wrong: bool = False


class Gallery(NamedTuple):
    """Rows of tiles: x, delta, x + delta, M, M * delta, x + M * delta.

    Attributes:
      title: heading.
      rows: (true class, tiles) for each image.
      radius: largest value of the colour scale of delta, as text.
      caption: sentences on what the mask does.
    """

    title: str
    rows: list[tuple[str, list[Tile]]]
    radius: str
    caption: str


def read(file: pathlib.Path) -> dict[str, np.ndarray] | None:
    """The arrays of masks.npz, or None if it is absent or damaged."""
    try:
        with np.load(file) as archive:
            views = {name: archive[name] for name in (*VIEWS, "labels", "predicted")}
            names = archive["class_names"] if "class_names" in archive else np.array([])
            has_names = not all(name.isdecimal() for name in names)
            return views | ({"class_names": names} if has_names else {})
    except Exception:  # np.load raises many types of errors for damaged archives.
        return None


def gallery(file: pathlib.Path, title: str = "Masks of test images") -> Gallery | None:
    """The gallery of a masks.npz; None if it is absent or damaged."""
    views = read(file)
    if views is None:
        return None
    delta = views["adversarial"] - views["natural"]
    radius = float(np.abs(delta).max()) or 1.0
    rows = [(_name(views, views["labels"][i]), _row(views, i, radius)) for i in range(len(delta))]
    return Gallery(title, rows, labels.radius(round(radius, 4)), describe(views))


def describe(views: Mapping[str, np.ndarray]) -> str:
    """Sentences on how much of the perturbation passes the mask, and on what the mask follows."""
    mask = views["mask"]
    delta = np.abs(views["adversarial"] - views["natural"])
    share = float((mask * delta).sum() / max(delta.sum(), 1e-12))
    variance = float(mask.var())
    between = float(mask.var(axis=0).mean()) / variance if variance > 1e-12 else 0.0
    return (
        "The classifier trains on x + M * delta: where M is 1 a pixel keeps its perturbation, "
        f"where M is 0 the pixel stays natural. Here {share:.0%} of the perturbation passes. "
        f"{between:.0%} of the variance of M is between images; the rest is one pattern that all "
        "images share."
    )


def _row(views: Mapping[str, np.ndarray], i: int, radius: float) -> list[Tile]:
    natural, adversarial, mask, calibrated = (views[name][i] for name in VIEWS)
    delta = adversarial - natural
    images = [
        _photo(natural),
        _mapped(delta, "RdBu", -radius, radius),
        _photo(adversarial),
        _mapped(mask, "viridis", 0, 1),
        _mapped(mask * delta, "RdBu", -radius, radius),
        _photo(calibrated),
    ]
    texts = ["", "", "", f"{mask.mean():.2f}", "", ""]
    tiles = [Tile(_png(image), text) for image, text in zip(images, texts, strict=True)]
    for order, column in enumerate(CLASSIFIED_COLUMNS):
        predicted = views["predicted"][i, order]
        is_wrong = bool(predicted != views["labels"][i])
        tiles[column] = Tile(tiles[column].png, _name(views, predicted), is_wrong)
    return tiles


def _name(views: Mapping[str, Any], label: int) -> str:
    names = views.get("class_names", ())
    return str(names[label])[:14] if len(names) else f"class {label}"


def _photo(image: np.ndarray) -> np.ndarray:
    """An image as RGB in [0, 1]."""
    return np.broadcast_to(np.clip(image, 0, 1), (*image.shape[:2], 3))


def _mapped(values: np.ndarray, name: str, low: float, high: float) -> np.ndarray:
    """The mean over the channels, in the colours of a colour map."""
    scaled = (values.mean(-1) - low) / (high - low)
    return np.asarray(matplotlib.colormaps[name](scaled))


def _png(image: np.ndarray) -> bytes:
    stream = io.BytesIO()
    imsave(stream, image, format="png")
    return stream.getvalue()
