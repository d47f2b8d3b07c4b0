"""One run as one HTML file that needs no other: numbers, curves, masks, checks, config, command."""

import base64
import html
import json
import pathlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from cat_jax import files
from cat_jax.report import plots, tables

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; margin: 2em auto; max-width: 72em;
  padding: 0 1em; }
h1, h2 { line-height: 1.2; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25em 0.8em; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child { text-align: left; }
.wide { overflow-x: auto; }
figure { display: inline-block; margin: 0 1em 1em 0; vertical-align: top; }
figure img { max-width: 100%; }
figcaption { max-width: 34em; color: #555; font-size: 0.9em; }
.ok { color: #00694d; } .failed { color: #b30000; font-weight: bold; }
pre { background: #f6f6f6; padding: 1em; overflow-x: auto; }
"""


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
        ("How it was made", _provenance(results, commands)),
        ("Config", _config(config)),
    ]
    body = "\n".join(f"<h2>{name}</h2>\n{text}" for name, text in sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<h1>{html.escape(title)}</h1>\n{_summary(config, metrics, results, checks)}\n"
        f"{body}\n</body>\n</html>\n"
    )


def _summary(
    config: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]],
    results: Sequence[Mapping[str, Any]],
    checks: Sequence[Mapping[str, Any]],
) -> str:
    """One paragraph: what it is, how far it is, whether to trust it."""
    step = max((line["step"] for line in metrics), default=0)
    skipped = round(sum(line.get("skipped", 0) for line in metrics))
    checks = tables.distinct(checks)
    failed = sum(not check["passed"] for check in checks)
    said = [
        f"{config['classifier']['name']}, method {config['method']['name']}, seed "
        f"{config['seed']}, conventions {config['conventions']}; {step} steps of "
        f"{config['batch_size']} images so far.",
        f"{skipped} steps were skipped: they were not finite." if skipped else "",
        "Not evaluated yet." if not results else "",
        f'<span class="failed">{failed} of {len(checks)} checks failed.</span>' if failed else "",
        f'<span class="ok">All {len(checks)} checks passed.</span>'
        if checks and not failed
        else "",
    ]
    return f"<p>{' '.join(filter(None, said))}</p>"


def _results(workdir: pathlib.Path, results: Sequence[Mapping[str, Any]]) -> str:
    if not results:
        return "<p>None yet.</p>"
    caption, *table = tables.runs_table([workdir]).split("\n\n")
    costs = tables.costs_table(workdir)
    cost = f"<h3>What it cost</h3>\n{_table(costs)}" if costs else ""
    lines = html.escape(caption).replace("\n", "<br>\n")
    return f"<p>{lines}</p>\n{_table(table[-1])}\n{cost}"


def _checks(checks: Sequence[Mapping[str, Any]]) -> str:
    if not checks:
        return "<p>None yet: they follow an evaluation.</p>"
    rows = []
    for check in tables.distinct(checks):
        verdict = '<td class="ok">ok' if check["passed"] else '<td class="failed">FAILED'
        name = html.escape(f"{check['checkpoint']} {check['name']}")
        text = html.escape(check["text"])
        rows.append(f'<tr><td>{name}</td>{verdict}</td><td style="text-align:left">{text}</td>')
    return f'<div class="wide"><table>{"</tr>".join(rows)}</tr></table></div>'


def _training(metrics: Sequence[Mapping[str, Any]]) -> str:
    pictures = [
        _picture(plots.losses(metrics), "Losses", "Means of the steps between two log lines."),
        _picture(plots.accuracies(metrics), "Accuracy on the validation split", ""),
    ]
    return "\n".join(filter(None, pictures)) or "<p>Nothing was logged yet.</p>"


def _radii(checks: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> str:
    curves = [c["curve"] for c in checks if c["name"] == "growing_epsilon" and c.get("curve")]
    epsilon = float(Fraction(config["test"]["epsilon"]))
    drawn = plots.radii(curves[-1] if curves else [], epsilon)
    caption = "Of the images that the checks are made on, under APGD on the cross-entropy."
    return _picture(drawn, "Accuracy against epsilon", caption) or "<p>Not measured yet.</p>"


def _masks(workdir: pathlib.Path, metrics: Sequence[Mapping[str, Any]]) -> str:
    if metrics and all(line.get("mask", 1.0) == 1.0 for line in metrics):
        return "<p>This method has none.</p>"
    views = plots.load_gallery(workdir / "masks.npz")
    caption = "Class that the classifier says above each view; wrong ones are coloured."
    pictures = [
        _picture(plots.mask_means(metrics), "Mean of M", "Over all pixels, while training."),
        _picture(plots.gallery(views), "Masks of test images", caption) if views else "",
    ]
    return "\n".join(filter(None, pictures)) or "<p>Nothing was logged yet.</p>"


def _provenance(results: Sequence[Mapping[str, Any]], commands: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        f"<p>{html.escape(c['time'])}</p><pre>{html.escape(c['command'])}</pre>" for c in commands
    ]
    if results:
        last = results[-1]
        versions = ", ".join(f"{name} {version}" for name, version in last["versions"].items())
        rows.append(f"<p>Commit {last['git_sha']}; {html.escape(versions)}.</p>")
    return "\n".join(rows) or "<p>Nothing is known yet.</p>"


def _config(config: Mapping[str, Any]) -> str:
    text = html.escape(json.dumps(config, indent=1))
    return f"<details><summary>config.json</summary><pre>{text}</pre></details>"


def _picture(png: bytes | None, title: str, caption: str) -> str:
    """A figure with the picture inside the page."""
    if png is None:
        return ""
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    text = html.escape(f"{title}. {caption}".strip())
    alt = html.escape(title)
    return f'<figure><img src="{source}" alt="{alt}"><figcaption>{text}</figcaption></figure>'


def _table(markdown: str) -> str:
    """A Markdown table as HTML."""
    head, _, *rows = (
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in markdown.strip().splitlines()
    )
    lines = [_row(head, "th"), *(_row(row, "td") for row in rows)]
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def _row(cells: Sequence[str], kind: str) -> str:
    return "<tr>" + "".join(f"<{kind}>{html.escape(cell)}</{kind}>" for cell in cells) + "</tr>"
