"""Draws curves of several runs in one picture, each in the colour of its name."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from matplotlib.figure import Figure

from cat_jax.report import plots
from cat_jax.report.epsilon_curves import Point
from cat_jax.report.plots import COLOURS, Records

Points = Sequence[tuple[float, ...]]  # (x, y), or (x, y, low, high) of a band.
Lines = Sequence[tuple[str, Points]]
Named = Sequence[tuple[str, Records]]  # Names of runs, and their metrics.jsonl.
DASHES = ("-", "--", ":", "-.")
LONG = 5  # Epochs; a longer curve is drawn as the means of its epochs.


def losses(runs: Named) -> bytes | None:
    """Draws both losses over the epochs."""
    panels = {
        "loss of the classifier": _of(runs, "classifier_loss"),
        "loss of the mask network": _of(runs, "mask_loss", without=0.0),
    }
    return _draw(panels, runs, "epoch")


def accuracies(runs: Named) -> bytes | None:
    """Draws natural and robust accuracy at each validation, in percent."""
    panels = {
        f"validation accuracy / %, {label}": [
            (name, [(x, 100 * y) for x, y in points])
            for name, points in _of(runs, f"validation_{metric}", mean=False)
        ]
        for label, metric in (("natural", "natural"), ("under PGD", "robust"))
    }
    return _draw(panels, runs, "epoch", limits=(0, 100))


def mask_means(runs: Named) -> bytes | None:
    """Draws the mean of M over the epochs, of methods that have a mask network."""
    lines = _of(runs, "mask", without=1.0)
    return _draw({"mean of the mask M": lines}, runs, "epoch", limits=(0, 1))


def radii(
    curves: Sequence[tuple[str, Sequence[Point]]], runs: Named, epsilons: Iterable[float]
) -> bytes | None:
    """Draws accuracy over the radius of the attack, with intervals as bands.

    Args:
      curves: points of each curve, by the name of its run.
      runs: all runs, in the order of their colours.
      epsilons: radii of other results, each marked by a dashed line.
    """
    lines = [
        (name, [(p.epsilon, 100 * p.accuracy, 100 * p.low, 100 * p.high) for p in points])
        for name, points in curves
    ]
    x = "epsilon, on the [0, 1] pixel scale"
    panels = {"accuracy under FMN / %": lines}
    return _draw(panels, runs, x, limits=(0, 100), marked=list(epsilons))


def _of(runs: Named, metric: str, *, without: float | None = None, mean: bool = True) -> Lines:
    """The points of a metric, without the runs where it always equals `without`."""
    lines = []
    for name, records in runs:
        points = plots.curve(records, metric)
        if any(y != without for _, y in points):
            lines.append((name, _per_epoch(points) if mean else points))
    return lines


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
    """Draws axes beside each other above one legend; None without lines.

    A name has the same colour in every picture of the same runs.

    Args:
      panels: lines of each axes, by the label of the y axis.
      runs: all runs, in the order of their colours.
      x: label of the x axis.
      limits: limits of the y axes.
      marked: places on the x axis, each marked by a dashed line.
    """
    panels = {y: lines for y, lines in panels.items() if lines}
    if not panels:
        return None
    order = {name: i for i, name in enumerate(dict.fromkeys(name for name, _ in runs))}
    handles = {}
    # Because two columns of long names do not fit below one panel.
    columns = 2 if max(map(len, order)) < 20 * len(panels) else 1
    size = 5.4 * len(panels), 3.6 + 0.2 * math.ceil(len(order) / columns)
    figure = Figure(figsize=size, layout="constrained")
    for axes, y in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        axes.set(xlabel=x, ylabel=y)
        axes.grid(alpha=0.3)
        for name, points in panels[y]:
            colour = COLOURS[order[name] % len(COLOURS)]
            at, value, *band = zip(*points, strict=True)
            (handles[name],) = axes.plot(
                at,
                value,
                color=colour,
                linestyle=DASHES[order[name] // len(COLOURS) % len(DASHES)],
                marker="o" if len(points) < 30 else "",
                markersize=3,
                linewidth=1.2,
            )
            if band:
                axes.fill_between(at, *band, color=colour, alpha=0.12, linewidth=0)
        for place in marked:
            axes.axvline(place, color="grey", ls="--", lw=1)
        axes.set_xlim(left=0)
        axes.set_ylim(*(limits or (0, None)))
    names = sorted(handles, key=order.__getitem__)
    legend = [handles[name] for name in names]
    figure.legend(legend, names, loc="outside lower center", ncols=columns, fontsize=8)
    return plots.png(figure)
