"""Writes one run as one HTML file: numbers, curves, masks, checks, config and commands."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from cat_jax.experiment import labels
from cat_jax.report import (
    corruption_table,
    details,
    epsilon_curves,
    facts,
    mask_gallery,
    per_class,
    plots,
    tables,
    transfer_matrix,
)
from cat_jax.report.render import Picture, render
from cat_jax.report.tables import References, no_reference
from cat_jax.report.times import Times
from cat_jax.storage import files, lines, run_folder
from cat_jax.storage.lines import Line
from cat_jax.storage.run_folder import RunFolder

Records = Sequence[Mapping[str, Any]]


def write_page(workdir: pathlib.Path, references: References = no_reference) -> pathlib.Path:
    """Writes workdir/report.html from the files that the run has so far."""
    file = RunFolder(workdir).report_file
    files.write_text(file, page(workdir, references))
    return file


def page(workdir: pathlib.Path, references: References = no_reference) -> str:
    """The HTML of a run; `references` are as in `tables.runs_grid`."""
    folder = RunFolder(workdir)
    config = json.loads(folder.config_file.read_text())
    run: dict[str, Records] = {
        name: files.read_json_lines(folder.lines_file(name)) for name in run_folder.LINES
    }
    run |= {name: tables.read(workdir, name) for name in ("results", "checks")}
    metrics, results = run["metrics"], run["results"]
    mask_means = {line["mask"] for line in metrics if "mask" in line}
    from_files = _from_files(metrics, results)
    checks = tables.distinct(run["checks"])
    return render(
        "report/templates/run.html",
        title=f"{workdir.resolve().name}: {from_files or _of_config(config)}",
        facts=facts.facts(config, run, is_trained=not from_files),
        headlines=facts.headlines(results),
        config_json=json.dumps(config, indent=1, allow_nan=False),
        run=run,
        diverged=lines.first_non_finite(metrics),
        skipped=round(sum(line.get("skipped", 0) for line in metrics)),
        accuracy=tables.runs_grid([workdir], references, width=1) if results else None,
        transfer=transfer_matrix.transfer_grids([workdir]),
        corruptions=corruption_table.corruption_grids([workdir]),
        costs=details.costs_grid(workdir),
        checks=checks,
        failed=[line for line in checks if not line["outcome"]["passed"]],
        check_name=labels.check,
        per_class=per_class.per_class(workdir, results),
        times=Times.of_lines(metrics).grid(),
        curves=_curves(metrics, has_masks=mask_means != {1.0}),
        radii=_radii(results),
        gallery=mask_gallery.gallery(folder.masks_file),
        has_masks=mask_means != {1.0},
    )


def _from_files(metrics: Records, results: Sequence[Line]) -> str:
    """The evaluated weights, if the workdir only has results of weights from files; else ""."""
    if metrics or not all(line["attacked"]["file"] for line in results):
        return ""
    return "; ".join(dict.fromkeys(tables.describe(line["attacked"]) for line in results))


def _of_config(config: Mapping[str, Any]) -> str:
    return f"{config['variant']} on {config['dataset']}"


def _curves(metrics: Records, *, has_masks: bool) -> list[Picture]:
    pictures = [
        Picture(plots.losses(metrics), "Losses", "Means of the steps between two log lines."),
        Picture(plots.accuracies(metrics), "Accuracy on the validation split"),
    ]
    means = Picture(plots.mask_means(metrics), "Mean of M", "Over all pixels of a batch.")
    return [*pictures, *([means] if has_masks else [])]


def _radii(results: Sequence[Line]) -> Picture:
    curves = epsilon_curves.curves(results)
    tested = epsilon_curves.tested(results, curves)
    captions = dict.fromkeys(
        [*(curve.caption for curve in curves), *(curve.comparison for curve in curves)]
    )
    return Picture(
        plots.radii(curves, tested),
        "Accuracy against epsilon",
        " ".join(filter(None, captions)),
    )
