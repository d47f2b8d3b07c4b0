"""The HTML of a run, and of each table: all that runs left, in one file, and what is missing."""

import html
import io
import json
import pathlib
import re
import shutil
import subprocess

import matplotlib.image
import numpy as np
import pytest
import small_runs
from finished_runs import COMMAND
from paper_runs import CAT_CENT, CAT_CW, make

from cat_jax.cli import modes
from cat_jax.evaluation import masks
from cat_jax.paper import output, runs, texts
from cat_jax.paper.query import Query
from cat_jax.report import mask_gallery, page, per_class, tables
from cat_jax.report.grids import Grid
from cat_jax.storage import files, lines
from cat_jax.theory import theory_page
from cat_jax.theory.text import Section

ROOT = pathlib.Path(__file__).parent.parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def test_the_page_holds_all_that_the_run_left(finished_run):
    text = page.page(finished_run)
    results = files.read_json_lines(finished_run / "results.jsonl")
    assert f"{100 * results[1]['outcome']['accuracy']:.1f}" in text
    for check in files.read_json_lines(finished_run / "checks.jsonl"):
        assert check["outcome"]["text"].partition("'")[0] in text
    assert COMMAND in html.unescape(text)
    assert results[0]["outcome"]["versions"]["jax"] in text and '"beta1": 0.05' in html.unescape(
        text
    )
    pictures = re.findall(r'src="data:image/png;base64,[^"]+" alt="([^"]+)"', text)
    pictures = [name for name in pictures if name]
    assert pictures == [
        *("Accuracy against epsilon", "Losses", "Accuracy on the validation split", "Mean of M")
    ]
    assert 'aria-label="Masks of test images"' in text
    assert "prefers-color-scheme: dark" in text and "so far" not in text


def test_the_top_of_the_page_states_threat_model_training_time_and_hardware(finished_run):
    workdir = finished_run
    text = page.page(workdir)
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text))
    assert facts["Threat model"] == (
        "L-infinity, training radius 0.15, test radius 0.15; images in [0, 1]"
    )
    assert facts["Network"] == "TinyClassifier, mask network TinyMask"
    assert facts["Training"] == "12 steps of 16 images (0.857 epochs)"
    assert facts["Checkpoints"] == "best = last at step 12; best is chosen on validation images"
    assert re.fullmatch(r"training steps \d+ (s|min), attacks \d+ (s|min)", facts["Time"])
    assert facts["Hardware"] == "training on 4 devices, attacks on cpu"
    results = [line for line in tables.read(workdir, "results") if not lines.is_curve(line)]
    lowest = min(line["outcome"]["accuracy"] for line in results)
    headlines = re.findall(r"<div><b>(.*?)</b>(.*?)<span>", text)
    natural = results[0]["outcome"]["accuracy"]
    assert headlines[:2] == [
        (f"{100 * natural:.1f}%", "natural accuracy"),
        (f"{100 * lowest:.1f}%", "under pgd20 at 0.15, the strongest attack"),
    ]


def test_accuracies_by_class_are_means_of_the_flags(finished_run):
    workdir = finished_run
    results = tables.read(workdir, "results")
    natural, attack = per_class.strongest(results)
    assert natural["conditions"]["attack"] == "natural" and "epsilon" in attack["conditions"]
    rows = per_class.per_class(workdir, results).rows
    assert sum(row.num_images for row in rows) == 64 and len(rows) == 10
    for line, name in ((natural, "natural"), (attack, "robust")):
        mean = sum(row.num_images * getattr(row, name) for row in rows) / 64
        assert mean == pytest.approx(line["outcome"]["accuracy"])
    assert '<table class="classes">' in page.page(workdir)
    caption = per_class.per_class(workdir, results).caption
    lowest, highest = (choose(row.robust for row in rows) for choose in (min, max))
    assert f"Under attack: {100 * lowest:.1f}% of" in caption
    assert f"to {100 * highest:.1f}% of" in caption


def test_a_later_evaluation_at_a_larger_radius_is_not_the_headline(finished_run):
    results = tables.read(finished_run, "results")
    _, attack = per_class.strongest(results)
    wider = {
        "attacked": attack["attacked"],
        "conditions": attack["conditions"] | {"epsilon": 0.3},
        "outcome": attack["outcome"] | {"accuracy": 0.0},
    }
    assert per_class.strongest([*results, wider])[1] == attack
    assert (
        per_class.strongest([*results, wider | {"conditions": attack["conditions"]}])[1] != attack
    )


def test_autoattack_on_some_images_is_the_headline_before_pgd_on_all(finished_run):
    results = tables.read(finished_run, "results")
    natural, attack = per_class.strongest(results)
    few = {"num_examples": 10, "subset": "balanced, seed 0"}

    def on_few(line, **conditions):
        return line | {"conditions": line["conditions"] | few | conditions}

    results += [on_few(natural), on_few(attack)]
    assert per_class.strongest(results) == (natural, attack)
    results.append(on_few(attack, attack="standard"))
    results[-1]["outcome"] = attack["outcome"] | {"accuracy": 0.01}
    assert per_class.strongest(results) == (on_few(natural), results[-1])
    results[-1]["conditions"]["epsilon"] = 0.3
    assert per_class.strongest(results) == (natural, attack)


def test_without_the_flags_of_an_attack_no_class_is_shown(finished_run, tmp_path):
    run = shutil.copytree(finished_run, tmp_path / "run")
    for file in run.glob("evaluation/*pgd20*.npz"):
        file.write_bytes(b"damaged")
    assert per_class.per_class(run, tables.read(run, "results")) is None
    assert '<table class="classes">' not in page.page(run)


def test_masks_npz_has_what_the_step_computes(finished_run):
    views = mask_gallery.read(finished_run / "masks.npz")
    delta = views["adversarial"] - views["natural"]
    np.testing.assert_allclose(
        views["calibrated"], views["natural"] + views["mask"] * delta, atol=1e-6
    )
    assert 0.01 < np.abs(delta).max() <= 0.15 + 1e-6
    assert 0 < views["mask"].min() and views["mask"].max() < 1
    assert sorted(views["labels"].tolist()) == list(range(10))
    assert views["predicted"].shape == (10, 3)
    assert set(masks.MaskViews._fields) <= set(views)


def test_the_gallery_shows_delta_and_the_masked_delta_in_colours(tmp_path):
    """Zero is white, the largest delta dark blue, its half lighter; M of 1 is yellow."""
    delta = np.zeros((1, 2, 2, 3))
    delta[0, 0, 0] = 0.2
    mask = np.array([0.5, 0.0, 1.0, 0.0]).reshape(1, 2, 2, 1) + np.zeros_like(delta)
    natural = np.full_like(delta, 0.5)
    views = {"natural": natural, "adversarial": natural + delta, "mask": mask}
    views |= {"calibrated": natural + mask * delta, "labels": np.array([3])}
    views["predicted"] = np.array([[3, 5, 3]])
    np.savez(tmp_path / "masks.npz", **views)
    gallery = mask_gallery.gallery(tmp_path / "masks.npz")
    ((name, tiles),) = gallery.rows
    pixels = [matplotlib.image.imread(io.BytesIO(tile.png))[..., :3] for tile in tiles]
    assert name == "class 3" and gallery.radius == "0.2"
    assert [tile.text for tile in tiles] == [*("class 3", "", "class 5", "0.38", "", "class 3")]
    assert [tile.is_wrong for tile in tiles] == [False, False, True, False, False, False]
    np.testing.assert_allclose(pixels[0], 0.5, atol=0.01)
    np.testing.assert_allclose(pixels[2][0, 0], 0.7, atol=0.01)
    np.testing.assert_allclose(pixels[5][0, 0], 0.6, atol=0.01)
    colours = matplotlib.colormaps["RdBu"]([1.0, 0.75, 0.5])[:, :3]
    np.testing.assert_allclose(pixels[1][0, 0], colours[0], atol=0.01)
    np.testing.assert_allclose(pixels[4][0, 0], colours[1], atol=0.01)
    np.testing.assert_allclose(pixels[4][1, 1], colours[2], atol=0.01)
    np.testing.assert_allclose(pixels[3][1, 0], matplotlib.colormaps["viridis"](1.0)[:3], atol=0.01)
    assert "Here 50% of the perturbation passes. 0% of the variance" in gallery.caption


@pytest.mark.parametrize(
    "missing, said",
    [
        (["results.jsonl"], ["Not evaluated yet.", "12 steps of 16 images (0.857 epochs) so far"]),
        (["checks.jsonl", "masks.npz", "commands.jsonl"], ["None yet: they follow an evaluation."]),
        (
            ["metrics.jsonl", "masks.npz"],
            ["Nothing was logged yet.", "No masks of test images yet"],
        ),
        (["results.jsonl", "checks.jsonl", "metrics.jsonl", "masks.npz"], ["0 steps"]),
    ],
)
def test_what_a_run_has_not_is_said(finished_run, tmp_path, missing, said):
    run = shutil.copytree(finished_run, tmp_path / "run")
    for name in missing:
        (run / name).unlink()
    text = page.page(run)
    assert all(words in text for words in said)


def test_a_failed_check_is_on_the_first_lines(finished_run, tmp_path):
    run = shutil.copytree(finished_run, tmp_path / "run")
    checks = files.read_json_lines(run / "checks.jsonl")
    checks[0]["outcome"] |= {"passed": False, "text": "1 < 2 & wrong"}
    files.write_json_lines(run / "checks.jsonl", checks)
    text = page.page(run)
    count = len(checks) // 2
    assert f"1 of {count} checks failed:" in re.sub(r"\s*<[^>]*>\s*", " ", text)
    assert "1 &lt; 2 &amp; wrong" in text


@pytest.mark.slow
def test_a_method_without_a_mask_draws_none(tmp_path):
    modes.train(small_runs.quick_config(num_steps=4), tmp_path / "run")
    text = (tmp_path / "run" / "report.html").read_text()
    assert "This method has none." in text and "mask network" not in text
    assert not (tmp_path / "run" / "masks.npz").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_a_repeated_command_is_noted_once(finished):
    modes.evaluate(None, finished, command=COMMAND)
    modes.evaluate(None, finished, command="another")
    commands = files.read_json_lines(finished / "commands.jsonl")
    assert [line["command"] for line in commands] == [COMMAND, "another"]


@pytest.fixture(scope="module")
def pages(finished_run, tmp_path_factory):
    """Every kind of page by its name: (where it comes from, its HTML)."""
    folder = tmp_path_factory.mktemp("tables")
    run = make(folder, CAT_CW)
    for name in ("metrics.jsonl", "masks.npz", "commands.jsonl"):
        shutil.copy(finished_run / name, run)
    checks = files.read_json_lines(finished_run / "checks.jsonl")
    checks[0]["outcome"] |= {"passed": False, "text": "1 < 2 & wrong"}
    files.write_json_lines(run / "checks.jsonl", checks)
    results = files.read_json_lines(finished_run / "results.jsonl")
    lines.replace(run / "results.jsonl", [line for line in results if lines.is_curve(line)])
    make(folder, CAT_CENT)
    make(folder, CAT_CENT, 1, num_steps=500)
    query = Query(runs.find(folder))
    of = {"mnist": query, "cifar100": Query([], scale=0.1), "losses": query}
    written = {
        name: output.as_html(name, output.build(name, query), output.draw(name, query), query)
        for name, query in of.items()
    }
    written["theory"] = theory()
    return written | {"report": (finished_run / "report.html").read_text()}


def theory():
    """A page of the pictures in docs/, below made-up sections that have the titles of all."""
    table = Grid("", "", ["phi", "errors"], [["hinge", "0.1 (0.0 to 0.2)"]])
    titles = ("Theorem 1: <", "Theorem 2: the upper bound", "Learned boundaries")
    sections = [Section(title, ["`f(x) < 0`:", table]) for title in titles]
    pictures = sorted((ROOT / "docs" / "results" / "theory").glob("*.png"))
    return theory_page.html("A caption.", sections, pictures)


def alts(text):
    """The pictures inside a page, by what they are called; formulas aside."""
    return re.findall(r'<figure[^>]*><img src="data:image/png;base64,[^"]+" alt="([^"]+)"', text)


def test_a_tables_page_holds_its_numbers_its_figure_and_its_runs(pages):
    text = pages["mnist"]
    assert alts(text) == [
        *("Figure", "Losses", "Accuracy on the validation split", "Mean of the mask M"),
        "Accuracy against epsilon",
    ]
    assert '<td class="number">99.0 (±0.4)</td>' in text and "no run" in text
    assert '<tr class="published">\n<td>published</td>\n<td class="number">99.1</td>' in text
    checks = text.partition('<h2 id="checks')[2].partition("<h2")[0]
    assert checks.count("<tr>") == 4, "the head, what failed, and two runs without checks"
    assert "1 &lt; 2 &amp; wrong" in checks and "not checked" in checks
    made = text.partition('<h2 id="how-each')[2]
    assert made.count("<summary>CAT_") == 3 and "--config='a b'" in html.unescape(made)
    assert "2 of 40 runs done." in text and text.count('class="better">done') == 2
    assert "Runs that differ from their row, named by the difference: 1." in text


def test_a_tables_page_names_shared_differences_once_and_shows_every_mask_network(tmp_path):
    images = {view: np.full((10, 28, 28, 1), 0.5) for view in mask_gallery.VIEWS}
    answers = {"labels": np.arange(10), "predicted": np.zeros((10, 3), int)}
    for row in (CAT_CENT, CAT_CW):
        run = make(tmp_path, row, scale=0.05)
        np.savez(run / "masks.npz", **images, **answers)
    query = Query(runs.find(tmp_path), scale=0.05)
    text = output.as_html("mnist", output.build("mnist", query), None, query)
    assert re.findall(r'aria-label="(Masks [^"]+)"', text) == [
        "Masks of CAT_cent(0.4), seed 0",
        "Masks of CAT_cw(0.4), seed 0",
    ]
    assert text.count("Every run on this page: 2 of 40 epochs, 500 test images.") == 1


def test_a_tables_page_without_runs_says_what_is_missing(pages):
    text = pages["cifar100"]
    assert alts(text) == ["Figure"] and '<td class="number">58.5</td>' in text
    assert "0 of 5 runs done." in text and "No run yet" in text and "SCALED: 0.1 of" in text
    assert text.count('class="none">missing') == 5


def test_formulas_are_pictures(pages):
    assert pages["losses"].count('class="formula"') == len(texts.LOSSES)


def test_the_theory_has_its_pictures_in_their_places(pages):
    found = re.findall(r"<h2>(.*?)</h2>|<img .*alt=\"(.*?)\"", pages["theory"])
    assert ["".join(parts) for parts in found] == [
        *("Theorem 1: &lt;", "Counterexamples to both theorems as stated"),
        *("Theorem 2: the upper bound", "Both theorems on random classifiers, one point each"),
        *("Learned boundaries", "Boundaries learned with and without the constraint"),
        "Boundaries learned by every objective",
    ]
    assert pages["theory"].count("<p><code>f(x) &lt; 0</code>:</p>") == 3
    assert pages["theory"].count('<td class="number">0.1 (0.0 to 0.2)</td>') == 3


@pytest.mark.parametrize("name", ["report", "mnist", "cifar100", "losses", "theory"])
def test_a_page_needs_no_other_file(pages, name):
    assert not re.search(r'(src|href)="(?!data:|#)', pages[name])


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_a_browser_shows_every_picture_and_finds_no_fault(pages, tmp_path):
    """One start for all pages: each in a frame of its own, as wide as a window."""
    frames = "".join(
        f'<iframe width="1300" name="{name}" srcdoc="{html.escape(text)}"></iframe>'
        for name, text in pages.items()
    )
    script = (
        "addEventListener('load', () => { document.title = JSON.stringify("
        "Object.fromEntries(Array.from(frames).map(f => [f.name, ["
        "f.document.documentElement.scrollWidth <= 1300,"
        "...[...f.document.images].map(i => i.complete && i.naturalWidth >= 8)]]))); });"
    )
    shown = tmp_path / "shown.html"
    shown.write_text(f"<!doctype html><title></title>{frames}<script>{script}</script>")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
    flags += ["--disable-background-networking", "--disable-component-update", "--disable-quic"]
    flags += ["--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    done = subprocess.run(
        [CHROMIUM, *flags, shown.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    found = json.loads(re.search(r"<title>(.*?)</title>", done.stdout).group(1))
    assert found == {name: [True] * (1 + text.count("<img")) for name, text in pages.items()}
    assert "CONSOLE" not in done.stderr, done.stderr
