"""Curves of several runs in one picture: a line for each, in the colour of its name."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from matplotlib.figure import Figure

from cat_jax.report import plots
from cat_jax.report.plots import COLOURS, Records

Points = Sequence[tuple[float, float]]
Lines = Sequence[tuple[str, Points]]
Named = Sequence[tuple[str, Records]]  # Names of runs, and their metrics.jsonl.
DASHES = ("-", "--", ":", "-.")
LONG = 5  # Epochs; longer curves are drawn as the means of their epochs.


def losses(runs: Named) -> bytes | None:
    """Both losses over the epochs."""
    panels = {
        "loss of the classifier": _of(runs, "classifier_loss"),
        "loss of the mask network": _of(runs, "mask_loss", without=0.0),
    }
    return _draw(panels, runs, "epoch")


def accuracies(runs: Named) -> bytes | None:
    """Natural and robust accuracy at each validation, in percent."""
    panels = {
        f"validation accuracy / %, {said}": [
            (name, [(x, 100 * y) for x, y in points])
            for name, points in _of(runs, f"validation_{metric}", mean=False)
        ]
        for said, metric in (("natural", "natural"), ("under PGD", "robust"))
    }
    return _draw(panels, runs, "epoch", limits=(0, 100))


def mask_means(runs: Named) -> bytes | None:
    """The mean of M over the epochs, of methods that have a mask network."""
    lines = _of(runs, "mask", without=1.0)
    return _draw({"mean of the mask M": lines}, runs, "epoch", limits=(0, 1))


def radii(curves: Lines, runs: Named, epsilons: Iterable[float]) -> bytes | None:
    """Accuracy over the radius of the attack.

    Args:
      curves: of (radius, accuracy as a fraction), by the names of runs.
      runs: all of them, which decides the colours.
      epsilons: radii of the other results, each marked by a line.
    """
    lines = [(name, [(x, 100 * y) for x, y in points]) for name, points in curves]
    x = "epsilon, as a part of the pixel range; dashed: tested there"
    marked = list(epsilons)
    return _draw({"accuracy under PGD / %": lines}, runs, x, limits=(0, 100), marked=marked)


def _of(runs: Named, metric: str, *, without: float | None = None, mean: bool = True) -> Lines:
    """A metric's points; a run where it has the value `without` throughout is left out."""
    found = []
    for name, records in runs:
        points = plots.curve(records, metric)
        if any(y != without for _, y in points):
            found.append((name, _per_epoch(points) if mean else points))
    return found


def _per_epoch(points: Points) -> Points:
    if points[-1][0] <= LONG:
        return points
    epochs: dict[int, list[float]] = {}
    for x, y in points:
        epochs.setdefault(math.ceil(x), []).append(y)
    return [(x, statistics.fmean(values)) for x, values in epochs.items()]


def _draw(
    panels: Mapping[str, Lines],
    runs: Named,
    x: str,
    *,
    limits: tuple[float, float] | None = None,
    marked: Sequence[float] = (),
) -> bytes | None:
    """Axes beside each other, by what is on their y axis, under one legend; None without lines.

    A name has the same colour in every picture of the same runs.
    """
    panels = {y: lines for y, lines in panels.items() if lines}
    if not panels:
        return None
    order = {name: i for i, name in enumerate(dict.fromkeys(name for name, _ in runs))}
    handles = {}
    # Two columns of names have to fit below.
    columns = 2 if max(map(len, order)) < 20 * len(panels) else 1
    size = 5.4 * len(panels), 3.6 + 0.2 * math.ceil(len(order) / columns)
    figure = Figure(figsize=size, layout="constrained")
    for axes, y in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        axes.set(xlabel=x, ylabel=y)
        axes.grid(alpha=0.3)
        for name, points in panels[y]:
            (handles[name],) = axes.plot(
                *zip(*points, strict=True),
                color=COLOURS[order[name] % len(COLOURS)],
                linestyle=DASHES[order[name] // len(COLOURS) % len(DASHES)],
                marker="o" if len(points) < 30 else "",
                markersize=3,
                linewidth=1.2,
            )
        for place in marked:
            axes.axvline(place, color="grey", ls="--", lw=1)
        axes.set_xlim(left=0)
        axes.set_ylim(*(limits or (0, None)))
    names = sorted(handles, key=order.__getitem__)
    legend = [handles[name] for name in names]
    figure.legend(legend, names, loc="outside lower center", ncols=columns, fontsize=8)
    return plots.png(figure)
