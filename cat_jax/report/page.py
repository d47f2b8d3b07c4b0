"""One run as one HTML file that needs no other: numbers, curves, masks, checks, config, command."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from cat_jax.experiment import labels
from cat_jax.report import details, epsilon_curves, plots, tables
from cat_jax.report.render import Picture, render
from cat_jax.report.tables import References, no_reference
from cat_jax.storage import files, run_folder
from cat_jax.storage.lines import Line

Records = Sequence[Mapping[str, Any]]


def write_page(workdir: pathlib.Path, references: References = no_reference) -> pathlib.Path:
    """Writes workdir/report.html from the files that the run has so far."""
    file = workdir / "report.html"
    files.write_text(file, page(workdir, references))
    return file


def page(workdir: pathlib.Path, references: References = no_reference) -> str:
    """The HTML of a run; `references` are as in `tables.runs_grid`."""
    config = json.loads((workdir / "config.json").read_text())
    run: dict[str, Records] = {
        name: files.read_json_lines(workdir / f"{name}.jsonl") for name in run_folder.LINES
    }
    run |= {name: tables.read(workdir, name) for name in ("results", "checks")}
    metrics, results = run["metrics"], run["results"]
    mask_means = {line["mask"] for line in metrics if "mask" in line}
    from_files = _from_files(metrics, results)
    return render(
        "report/templates/run.html",
        title=f"{workdir.resolve().name}: {from_files or _of_config(config)}",
        config=config,
        config_json=json.dumps(config, indent=1, allow_nan=False),
        run=run,
        from_files=from_files,
        step=max((line["step"] for line in metrics), default=0),
        diverged=run_folder.first_non_finite(metrics),
        skipped=round(sum(line.get("skipped", 0) for line in metrics)),
        accuracy=tables.runs_grid([workdir], references) if results else None,
        remarks=tables.remarks(workdir),
        costs=details.costs_grid(workdir),
        checks=tables.distinct(run["checks"]),
        check_name=labels.check,
        curves=_curves(metrics),
        radii=_radii(results),
        masks=_masks(workdir, metrics),
        has_masks=mask_means != {1.0},
    )


def _from_files(metrics: Records, results: Sequence[Line]) -> str:
    """What was evaluated, if it is only weights from elsewhere; "" for the workdir of a run."""
    if metrics or not all(line["attacked"]["file"] for line in results):
        return ""
    return "; ".join(dict.fromkeys(tables.describe(line["attacked"]) for line in results))


def _of_config(config: Mapping[str, Any]) -> str:
    return f"{config['variant']} on {config['dataset']}"


def _curves(metrics: Records) -> list[Picture]:
    return [
        Picture(plots.losses(metrics), "Losses", "Means of the steps between two log lines."),
        Picture(plots.accuracies(metrics), "Accuracy on the validation split"),
    ]


def _radii(results: Sequence[Line]) -> Picture:
    curves = epsilon_curves.curves(results)
    on_curves = {point.epsilon for curve in curves for point in curve.points}
    tested = {line["conditions"].get("epsilon", 0.0) for line in results} - on_curves - {0.0}
    captions = dict.fromkeys(curve.caption for curve in curves)
    return Picture(
        plots.radii(curves, sorted(tested)), "Accuracy against epsilon", " ".join(captions)
    )


def _masks(workdir: pathlib.Path, metrics: Records) -> list[Picture]:
    views = plots.load_gallery(workdir / "masks.npz")
    gallery = plots.gallery(views) if views else None
    caption = "The classifier's class is above each view; wrong classes are coloured."
    return [
        Picture(plots.mask_means(metrics), "Mean of M", "Over all pixels, while training."),
        Picture(gallery, "Masks of test images", caption),
    ]
