"""The pictures of one run, drawn from the files that it left. Nothing is shown: PNGs are returned.

Each is None where the run has nothing to draw.
"""

import io
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import mathtext
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from cat_jax.experiment import labels
from cat_jax.report.epsilon_curves import Curve

Records = Sequence[Mapping[str, Any]]

# Of Okabe and Ito: told apart by colour-blind eyes too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
ROWS = ("natural", "adversarial", "mask", "calibrated")  # The rows of the paper's picture of M.


def losses(metrics: Records) -> bytes | None:
    """Both losses over the epochs: means of the steps between two lines of metrics.jsonl."""
    curves = {
        "classifier (Eq. 13)": curve(metrics, "classifier_loss"),
        "mask network (Eq. 14)": curve(metrics, "mask_loss"),
    }
    return _lines(curves, "loss", None)


def accuracies(metrics: Records) -> bytes | None:
    """What each validation measured, in percent over the epochs."""
    names = {"natural": "natural", "under FGSM": "fgsm", "under PGD": "robust"}
    curves = {
        label: [(x, 100 * y) for x, y in curve(metrics, f"validation_{name}")]
        for label, name in names.items()
    }
    return _lines(curves, "validation accuracy / %", (0, 100))


def mask_means(metrics: Records) -> bytes | None:
    """The mean of M over the epochs."""
    return _lines({"mean of M": curve(metrics, "mask")}, "mean of the mask M", (0, 1))


def radii(curves: Sequence[Curve], tested: Sequence[float]) -> bytes | None:
    """Accuracy in percent against the radius, with its intervals.

    Args:
      curves: one for each set of weights.
      tested: radii of the other results, each marked by a line.
    """
    if not curves:
        return None
    figure, axes = _axes("epsilon, as a part of the pixel range", "accuracy under PGD / %")
    for curve, colour in zip(curves, itertools.cycle(COLOURS), strict=False):
        epsilons, *shares = np.transpose(curve.points)
        accuracies, low, high = (100 * share for share in shares)
        axes.plot(epsilons, accuracies, "o-", color=colour, label=curve.name)
        axes.fill_between(epsilons, low, high, color=colour, alpha=0.2)
    for epsilon in tested:
        label = f"tested at {labels.radius(epsilon)}"
        axes.axvline(epsilon, color="grey", linestyle="--", label=label)
    axes.set(ylim=(0, 100))
    axes.set_xlim(left=0)
    axes.legend()
    return png(figure)


def gallery(views: Mapping[str, np.ndarray]) -> bytes:
    """One column for each image; natural, adversarial, mask and calibrated below each other.

    Args:
      views: as `masks.MaskViews` names them; "class_names" too, unless they are numbers. Above a
        view is what the classifier says of it, in red if that is wrong.
    """
    count, names = len(views["labels"]), views.get("class_names", ())
    figure = Figure(figsize=(1.1 * count + 1.1, 5.4), layout="constrained")
    grid = figure.subplots(len(ROWS), count, squeeze=False)
    for row, name in enumerate(ROWS):
        for column in range(count):
            axes = grid[row, column]
            image = np.clip(views[name][column], 0, 1).squeeze()
            image = image if image.ndim == 2 or name != "mask" else image.mean(-1)
            axes.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            axes.set(xticks=[], yticks=[])
            if name == "mask":
                axes.set_title(f"mean {image.mean():.2f}", fontsize=8)
                continue
            said = views["predicted"][column, [n for n in ROWS if n != "mask"].index(name)]
            wrong = said != views["labels"][column]
            title = f"class {said}" if not len(names) else names[said][:14]
            axes.set_title(title, fontsize=8, color=COLOURS[1] if wrong else "black")
        grid[row, 0].set_ylabel(name)
    return png(figure)


def formula(text: str) -> bytes:
    """Mathematics between dollars, as TeX writes it, as an SVG file."""
    stream = io.BytesIO()
    mathtext.math_to_image(text, stream, FontProperties(size=13), format="svg")
    return stream.getvalue()


def load_gallery(file: pathlib.Path) -> dict[str, np.ndarray] | None:
    """What `gallery` draws, or None if the run has none that is whole."""
    try:
        with np.load(file) as kept:
            found = {name: kept[name] for name in (*ROWS, "labels", "predicted")}
            names = kept["class_names"] if "class_names" in kept else np.array([])
            numbers = all(name.isdecimal() for name in names)
            return found | ({} if numbers else {"class_names": names})
    except Exception:  # There is no end to what a damaged archive can raise.
        return None


def curve(metrics: Records, name: str) -> list[tuple[float, float]]:
    """(epoch, value) of each line of metrics.jsonl that has the value, where it is finite."""
    lines = [line for line in metrics if line.get(name) is not None and "epoch" in line]
    return [(line["epoch"], line[name]) for line in lines]


def _lines(
    curves: Mapping[str, Sequence[tuple[float, float]]], label: str, limits: Any
) -> bytes | None:
    """Curves over the epochs; those without points, or 0 throughout, are left out."""
    drawn = {name: points for name, points in curves.items() if any(y for _, y in points)}
    if not drawn:
        return None
    figure, axes = _axes("epoch", label)
    for (name, points), colour in zip(drawn.items(), COLOURS, strict=False):
        marker = "o" if len(points) < 30 else ""
        axes.plot(*np.transpose(points), marker=marker, markersize=3, color=colour, label=name)
    axes.set_xlim(left=0)
    if limits:
        axes.set_ylim(*limits)
    else:
        axes.set_ylim(bottom=0)
    axes.legend()
    return png(figure)


def _axes(x: str, y: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    return figure, axes


def png(figure: Figure) -> bytes:
    """The figure as a PNG file."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110)
    return stream.getvalue()
