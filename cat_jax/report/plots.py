"""Draws the charts of one run from its files, as PNG; None if the run has nothing to draw."""

import io
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import mathtext
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from cat_jax.experiment import labels
from cat_jax.report.epsilon_curves import Curve

Records = Sequence[Mapping[str, Any]]

# The palette of Okabe and Ito, which colour-blind readers can distinguish.
DPI = 160
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def losses(metrics: Records) -> bytes | None:
    """Both losses over the epochs."""
    curves = {
        "classifier (Eq. 13)": curve(metrics, "classifier_loss"),
        "mask network (Eq. 14)": curve(metrics, "mask_loss"),
    }
    return _lines(curves, "loss", None)


def accuracies(metrics: Records) -> bytes | None:
    """The accuracies of each validation in percent over the epochs."""
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
    """Accuracy in percent against the radius, with its intervals; marks are crosses.

    Args:
      curves: one for each set of weights.
      tested: radii of the other results, each marked with a line.
    """
    if not curves:
        return None
    figure, axes = _axes("epsilon (pixels are in [0, 1])", "accuracy under attack / %")
    for curve, colour in zip(curves, itertools.cycle(COLOURS), strict=False):
        epsilons, *shares = np.transpose(curve.points)
        accuracies, low, high = (100 * share for share in shares)
        axes.plot(epsilons, accuracies, "o-", markersize=3, color=colour, label=curve.name)
        axes.fill_between(epsilons, low, high, color=colour, alpha=0.2)
        marks = [(mark.epsilon, 100 * mark.accuracy) for mark in curve.marks]
        if marks:
            axes.plot(*np.transpose(marks), "x", color=colour, label=f"{curve.name}, APGD")
    for epsilon in tested:
        label = f"tested at {labels.radius(epsilon)}"
        axes.axvline(epsilon, color="grey", linestyle="--", label=label)
    axes.set(ylim=(0, 100))
    axes.set_xlim(left=0)
    _legend(figure, axes)
    return png(figure)


def formula(text: str) -> bytes:
    """TeX mathematics between dollars, as an SVG file."""
    stream = io.BytesIO()
    mathtext.math_to_image(text, stream, FontProperties(size=13), format="svg")
    return stream.getvalue()


def curve(metrics: Records, name: str) -> list[tuple[float, float]]:
    """(epoch, value) of each line of metrics.jsonl that has the value."""
    lines = [line for line in metrics if line.get(name) is not None and "epoch" in line]
    return [(line["epoch"], line[name]) for line in lines]


def _lines(
    curves: Mapping[str, Sequence[tuple[float, float]]], label: str, limits: Any
) -> bytes | None:
    """Curves over the epochs, without those that have no points or are 0 throughout."""
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
    _legend(figure, axes)
    return png(figure)


def _legend(figure: Figure, axes: Any) -> None:
    """Names the curves above the axes, where they cover none."""
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper left", ncols=3, frameon=False, fontsize=9)


def _axes(x: str, y: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(4.8, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def png(figure: Figure) -> bytes:
    """The figure as a PNG file."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=DPI)
    return stream.getvalue()
