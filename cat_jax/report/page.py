"""One run as one HTML file that needs no other: numbers, curves, masks, checks, config, command."""

import html
import json
import pathlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from cat_jax.report import html_parts, plots, tables
from cat_jax.report.html_parts import picture
from cat_jax.storage import files, run_folder

Records = Sequence[Mapping[str, Any]]


def write_page(workdir: pathlib.Path) -> pathlib.Path:
    """Writes workdir/report.html, whole, from whatever the run has left so far."""
    file = workdir / "report.html"
    files.write_text(file, page(workdir))
    return file


def page(workdir: pathlib.Path) -> str:
    """The HTML of a run."""
    config = json.loads((workdir / "config.json").read_text())
    metrics, results, checks, commands = (
        files.read_json_lines(workdir / f"{name}.jsonl")
        for name in ("metrics", "results", "checks", "commands")
    )
    title = f"{workdir.resolve().name}: {config['variant']} on {config['dataset']}"
    sections = [
        ("Accuracy", _results(workdir, results)),
        ("Checks against false robustness", _checks(checks)),
        ("Training", _training(metrics)),
        ("Robustness against epsilon", _radii(checks, config)),
        ("Masks", _masks(workdir, metrics)),
        ("How it was made", provenance(results, commands)),
        ("Config", folded_config(config)),
    ]
    summary = _summary(config, metrics, results, checks)
    return html_parts.document(title, f"{summary}\n{html_parts.sections(sections)}")


def _summary(
    config: Mapping[str, Any],
    metrics: Records,
    results: Records,
    checks: Records,
) -> str:
    """One paragraph: what it is, how far it is, whether to trust it."""
    step = max((line["step"] for line in metrics), default=0)
    diverged = run_folder.first_non_finite(metrics)
    skipped = round(sum(line.get("skipped", 0) for line in metrics))
    checks = tables.distinct(checks)
    failed = sum(not check["passed"] for check in checks)
    said = [
        f"{config['classifier']['name']}, method {config['method']['name']}, seed "
        f"{config['seed']}, conventions {config['conventions']}; {step} steps of "
        f"{config['batch_size']} images so far.",
        f'<span class="failed">Diverged: {diverged}.</span>' if diverged else "",
        f"{skipped} steps were skipped: they were not finite." if skipped else "",
        "Not evaluated yet." if not results else "",
        f'<span class="failed">{failed} of {len(checks)} checks failed.</span>' if failed else "",
        f'<span class="ok">All {len(checks)} checks passed.</span>'
        if checks and not failed
        else "",
    ]
    return f"<p>{' '.join(filter(None, said))}</p>"


def _results(workdir: pathlib.Path, results: Records) -> str:
    if not results:
        return "<p>None yet.</p>"
    caption, *table = tables.runs_table([workdir]).split("\n\n")
    costs = tables.costs_table(workdir)
    cost = f"<h3>What it cost</h3>\n{html_parts.markdown_table(costs)}" if costs else ""
    lines = html.escape(caption).replace("\n", "<br>\n")
    return f"<p>{lines}</p>\n{html_parts.markdown_table(table[-1])}\n{cost}"


def _checks(checks: Records) -> str:
    if not checks:
        return "<p>None yet: they follow an evaluation.</p>"
    rows = (html_parts.row(check_cells(check)) for check in tables.distinct(checks))
    return html_parts.table(html_parts.texts("check", "", "found", tag="th"), rows)


def check_cells(check: Mapping[str, Any]) -> list[str]:
    """A line of checks.jsonl as cells: name, verdict, what was found."""
    kind, word = ("ok", "ok") if check["passed"] else ("failed", "FAILED")
    name, text = html_parts.texts(f"{check['checkpoint']} {check['name']}", check["text"])
    return [name, html_parts.cell(word, kind), text]


def _training(metrics: Records) -> str:
    pictures = [
        picture(plots.losses(metrics), "Losses", "Means of the steps between two log lines."),
        picture(plots.accuracies(metrics), "Accuracy on the validation split", ""),
    ]
    return "\n".join(filter(None, pictures)) or "<p>Nothing was logged yet.</p>"


def _radii(checks: Records, config: Mapping[str, Any]) -> str:
    curves = [c["curve"] for c in checks if c["name"] == "growing_epsilon" and c.get("curve")]
    epsilon = float(Fraction(config["test"]["epsilon"]))
    drawn = plots.radii(curves[-1] if curves else [], epsilon)
    caption = "Of the images that the checks are made on, under APGD on the cross-entropy."
    return picture(drawn, "Accuracy against epsilon", caption) or "<p>Not measured yet.</p>"


def _masks(workdir: pathlib.Path, metrics: Records) -> str:
    known = [line["mask"] for line in metrics if "mask" in line]
    if known and set(known) == {1.0}:
        return "<p>This method has none.</p>"
    views = plots.load_gallery(workdir / "masks.npz")
    caption = "Class that the classifier says above each view; wrong ones are coloured."
    pictures = [
        picture(plots.mask_means(metrics), "Mean of M", "Over all pixels, while training."),
        picture(plots.gallery(views), "Masks of test images", caption) if views else "",
    ]
    return "\n".join(filter(None, pictures)) or "<p>Nothing was logged yet.</p>"


def provenance(results: Records, commands: Records) -> str:
    """Commands, commit and versions; says so where they are not known."""
    rows = [
        f"<p>{html.escape(c['time'])}</p><pre>{html.escape(c['command'])}</pre>" for c in commands
    ]
    if results and "versions" in results[-1]:
        last = results[-1]
        versions = ", ".join(f"{name} {version}" for name, version in last["versions"].items())
        rows.append(f"<p>Commit {last['git_sha']}; {html.escape(versions)}.</p>")
    return "\n".join(rows) or "<p>Nothing is known yet.</p>"


def folded_config(config: Mapping[str, Any]) -> str:
    """All of a config, until asked for only its name."""
    text = html.escape(json.dumps(config, indent=1))
    return html_parts.details("config.json", f"<pre>{text}</pre>")
