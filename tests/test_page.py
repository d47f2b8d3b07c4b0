"""The HTML report of a run: all that the run left, in one file, and what is missing."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
import small_runs

from cat_jax import files, main, masks
from cat_jax.report import page, plots

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A run that is done, evaluated and checked."""
    workdir = tmp_path_factory.mktemp("page") / "run"
    config = small_runs.config(**{"test.num_checked": 16, "validation.every_epochs": 1})
    main.run(config, workdir, "train", command="python -m cat_jax.main --config='a b'")
    return workdir


def test_the_page_holds_all_that_the_run_left(workdir):
    text = (workdir / "report.html").read_text()
    results = files.read_json_lines(workdir / "results.jsonl")
    assert f"{100 * results[1]['accuracy']:.1f}" in text
    for check in files.read_json_lines(workdir / "checks.jsonl"):
        assert check["text"].partition("'")[0] in text
    assert "python -m cat_jax.main --config=&#x27;a b&#x27;" in text
    assert results[0]["versions"]["jax"] in text and "&quot;beta1&quot;: 0.05" in text
    pictures = re.findall(r'src="data:image/png;base64,[^"]+" alt="([^"]+)"', text)
    assert pictures == [
        *("Losses", "Accuracy on the validation split", "Accuracy against epsilon"),
        *("Mean of M", "Masks of test images"),
    ]
    assert not re.search(r'(src|href)="(?!data:)', text), "it needs no other file"


def test_the_gallery_is_what_the_step_computes(workdir):
    views = plots.load_gallery(workdir / "masks.npz")
    delta = views["adversarial"] - views["natural"]
    np.testing.assert_allclose(
        views["calibrated"], views["natural"] + views["mask"] * delta, atol=1e-6
    )
    assert 0.01 < np.abs(delta).max() <= 0.15 + 1e-6
    assert 0 < views["mask"].min() and views["mask"].max() < 1
    assert sorted(views["labels"].tolist()) == list(range(10))
    assert views["predicted"].shape == (10, 3)
    assert set(masks.MaskViews._fields) <= set(views)


@pytest.mark.parametrize(
    "missing, said",
    [
        (["results.jsonl"], "Not evaluated yet."),
        (["checks.jsonl"], "None yet: they follow an evaluation."),
        (["metrics.jsonl"], "Nothing was logged yet."),
        (["masks.npz", "commands.jsonl"], "Mean of M"),
        (["results.jsonl", "checks.jsonl", "metrics.jsonl", "masks.npz"], "0 steps"),
    ],
)
def test_what_a_run_has_not_is_said(workdir, tmp_path, missing, said):
    run = shutil.copytree(workdir, tmp_path / "run")
    for name in missing:
        (run / name).unlink()
    assert said in page.page(run)


def test_a_failed_check_is_on_the_first_lines(workdir, tmp_path):
    run = shutil.copytree(workdir, tmp_path / "run")
    checks = files.read_json_lines(run / "checks.jsonl")
    checks[0] |= {"passed": False, "text": "1 < 2 & wrong"}
    files.write_json_lines(run / "checks.jsonl", checks)
    text = page.page(run)
    count = len(checks) // 2
    assert f"1 of {count} checks failed." in text
    assert "1 &lt; 2 &amp; wrong" in text


def test_a_method_without_a_mask_draws_none(tmp_path):
    main.run(small_runs.quick_config(num_steps=4), tmp_path / "run", "train")
    text = (tmp_path / "run" / "report.html").read_text()
    assert "This method has none." in text and "mask network" not in text
    assert not (tmp_path / "run" / "masks.npz").exists()


def test_a_repeated_command_is_noted_once(workdir):
    main.run(None, workdir, "evaluate", command="python -m cat_jax.main --config='a b'")
    main.run(None, workdir, "evaluate", command="another")
    lines = files.read_json_lines(workdir / "commands.jsonl")
    assert [line["command"] for line in lines] == [
        "python -m cat_jax.main --config='a b'",
        "another",
    ]


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_a_browser_shows_every_picture_and_finds_no_fault(workdir, tmp_path):
    script = (
        "<script>addEventListener('load', () => { document.title = JSON.stringify("
        "[...document.images].map(i => i.complete && i.naturalWidth > 100)); });</script>"
    )
    shown = tmp_path / "shown.html"
    shown.write_text((workdir / "report.html").read_text().replace("</body>", f"{script}</body>"))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
    flags += ["--disable-background-networking", "--disable-component-update", "--disable-quic"]
    flags += ["--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    done = subprocess.run(
        [CHROMIUM, *flags, shown.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    title = re.search(r"<title>(.*?)</title>", done.stdout).group(1)
    assert json.loads(title) == [True] * 5
    assert "CONSOLE" not in done.stderr, done.stderr
