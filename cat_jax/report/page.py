"""One run as one HTML file that needs no other: numbers, curves, masks, checks, config, command."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from cat_jax.report import plots, tables
from cat_jax.report.render import Picture, render
from cat_jax.storage import files, run_folder

Records = Sequence[Mapping[str, Any]]


def write_page(workdir: pathlib.Path) -> pathlib.Path:
    """Writes workdir/report.html from the files that the run has so far."""
    file = workdir / "report.html"
    files.write_text(file, page(workdir))
    return file


def page(workdir: pathlib.Path) -> str:
    """The HTML of a run."""
    config = json.loads((workdir / "config.json").read_text())
    run = {name: files.read_json_lines(workdir / f"{name}.jsonl") for name in run_folder.LINES}
    metrics, checks = run["metrics"], run["checks"]
    mask_means = {line["mask"] for line in metrics if "mask" in line}
    return render(
        "report/templates/run.html",
        title=f"{workdir.resolve().name}: {config['variant']} on {config['dataset']}",
        config=config,
        config_json=json.dumps(config, indent=1, allow_nan=False),
        run=run,
        step=max((line["step"] for line in metrics), default=0),
        diverged=run_folder.first_non_finite(metrics),
        skipped=round(sum(line.get("skipped", 0) for line in metrics)),
        accuracy=tables.runs_grid([workdir]) if run["results"] else None,
        costs=tables.costs_grid(workdir),
        checks=tables.distinct(checks),
        curves=_curves(metrics),
        radii=_radii(checks, config),
        masks=_masks(workdir, metrics),
        has_masks=mask_means != {1.0},
    )


def _curves(metrics: Records) -> list[Picture]:
    return [
        Picture(plots.losses(metrics), "Losses", "Means of the steps between two log lines."),
        Picture(plots.accuracies(metrics), "Accuracy on the validation split"),
    ]


def _radii(checks: Records, config: Mapping[str, Any]) -> Picture:
    curves = [c["curve"] for c in checks if c["name"] == "growing_epsilon" and c.get("curve")]
    epsilon = float(Fraction(config["test"]["epsilon"]))
    drawn = plots.radii(curves[-1] if curves else [], epsilon)
    caption = "Of the images that the checks are made on, under APGD on the cross-entropy."
    return Picture(drawn, "Accuracy against epsilon", caption)


def _masks(workdir: pathlib.Path, metrics: Records) -> list[Picture]:
    views = plots.load_gallery(workdir / "masks.npz")
    gallery = plots.gallery(views) if views else None
    caption = "The classifier's class is above each view; wrong classes are coloured."
    return [
        Picture(plots.mask_means(metrics), "Mean of M", "Over all pixels, while training."),
        Picture(gallery, "Masks of test images", caption),
    ]
