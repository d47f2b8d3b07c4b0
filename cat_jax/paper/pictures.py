"""Draws the paper's figures of images and of ideas: masks, and two kinds of adaptation."""

import zipfile

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cat_jax.paper import figures
from cat_jax.paper.query import Query
from cat_jax.paper.rows import Row, Table
from cat_jax.storage.run_folder import RunFolder

matplotlib.use("Agg")
VIEWS = ("natural", "adversarial", "mask", "calibrated")
NUM_IMAGES = 5


def masks(table: Table, query: Query) -> Figure:
    """Draws five digits in four views for each row of the table that has a run."""
    blocks = dict(filter(None, (_block(row, query) for row in table.rows)))
    across = NUM_IMAGES * max(1, len(blocks))
    figure = Figure(figsize=(0.95 * across + 1, 4.4), layout="constrained")
    grid = figure.subplots(len(VIEWS), across, squeeze=False)
    for axes in grid.flat:
        axes.set_xticks([])
        axes.set_yticks([])
    for view, axes in zip(VIEWS, grid[:, 0], strict=True):
        axes.set_ylabel(view)
    for block, (label, images) in enumerate(blocks.items()):
        grid[0, block * NUM_IMAGES + NUM_IMAGES // 2].set_title(label, fontsize=9)
        for i, view in enumerate(VIEWS):
            for j, image in enumerate(images[view][:NUM_IMAGES]):
                picture = grid[i, block * NUM_IMAGES + j].imshow(image, cmap="gray", vmin=0, vmax=1)
    if blocks:
        figure.colorbar(picture, ax=grid[:, -1], label="pixel, or mask", shrink=0.6)
    figures.put_title(figure, table, query, "" if blocks else "no run")
    return figure


def _block(row: Row, query: Query) -> tuple[str, dict[str, np.ndarray]] | None:
    """Returns the name and the views of a row's first run with images; exact runs come first."""
    for match in sorted(query.of(row), key=lambda match: len(match.differences)):
        try:
            with np.load(RunFolder(match.run.workdir).masks_file) as archive:
                name = ", ".join((row.label, *match.differences, f"seed {match.run.seed}"))
                return name, {view: archive[view][..., 0] for view in VIEWS}
        except (OSError, KeyError, ValueError, zipfile.BadZipFile):
            continue
    return None


def boundary(x: np.ndarray) -> np.ndarray:
    """Returns x2 of a decision boundary that crosses the ball of radius 1 around 0."""
    return 0.62 - 0.35 * x - 0.25 * x**2


def scaled_to_boundary(delta: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Returns the point t * scale * delta on the boundary, by bisection over t in [0, 1]."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        x, y = middle * scale * delta
        low, high = (low, middle) if y > boundary(np.asarray(x)) else (middle, high)
    return low * scale * delta


def adaptation() -> Figure:
    """Draws one perturbation scaled back to the boundary, as one number and pixel by pixel."""
    figure = Figure(figsize=(5, 4.6), layout="constrained")
    axes = figure.subplots()
    at = np.linspace(-1.3, 1.3, 100)
    axes.plot(at, boundary(at), color="black", label="decision boundary")
    axes.add_patch(Rectangle((-1, -1), 2, 2, fill=False, ls="--", label="epsilon-ball"))
    delta = np.array([1.0, 1.0])
    _point(axes, np.zeros(2), "x", "C0", "natural example")
    _point(axes, delta, "x'", "C3", "adversarial example")
    uniform = scaled_to_boundary(delta, np.ones(2))
    _point(axes, uniform, "x0'", "C1", "instance-level: epsilon is reduced")
    for i, scale in enumerate((np.array([1.0, 0.35]), np.array([0.2, 1.0]))):
        label = "pixel-level: each pixel has its own M" if not i else ""
        _point(axes, scaled_to_boundary(delta, scale), f"x{i + 1}'", "C2", label)
    reduced = Rectangle((-uniform[0], -uniform[1]), *(2 * uniform), fill=False, ls=":", color="C1")
    axes.add_patch(reduced)
    axes.set_xlabel("perturbation of pixel 1, in epsilons")
    axes.set_ylabel("perturbation of pixel 2, in epsilons")
    axes.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal")
    axes.legend(fontsize=7, loc="lower left")
    axes.set_title("Figure 7: an illustration", fontsize=9)
    return figure


def _point(axes: Axes, at: np.ndarray, name: str, colour: str, label: str) -> None:
    axes.plot(*at, "o", color=colour, label=label or None)
    axes.annotate(name, tuple(at), textcoords="offset points", xytext=(5, 5))
