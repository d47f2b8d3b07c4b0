"""Corrupted images: closed forms, noise of each image, and the lines and table of a run."""

import io

import finished_runs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial
from PIL import Image

from cat_jax import data
from cat_jax.cli import modes
from cat_jax.data.corruptions import STRENGTHS
from cat_jax.errors import UsageError
from cat_jax.evaluation import evaluate
from cat_jax.report import corruption_table, tables
from cat_jax.storage import files, lines
from cat_jax.weights import trained

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (6, 8, 8, 3)).astype(np.uint8)
KEYS = jax.random.split(jax.random.key(0), 6)
DETERMINISTIC = ("gaussian_blur", "defocus_blur", "contrast", "pixelate")


def change(kind, severity, images=IMAGES, keys=KEYS):
    """The mean distance that a corruption moves a value, in grey levels."""
    corrupted = data.corrupt(images, kind, severity, keys)
    assert corrupted.shape == images.shape and corrupted.dtype == np.uint8
    return np.abs(corrupted.astype(float) - images).mean()


@pytest.mark.slow
@pytest.mark.parametrize("kind", data.KINDS)
def test_a_higher_severity_changes_more(kind):
    weak, strong = change(kind, 1), change(kind, 5)
    assert 0 <= weak < strong
    assert strong > 5


@pytest.mark.parametrize("kind", DETERMINISTIC)
def test_flat_images_have_nothing_to_blur(kind):
    flat = np.broadcast_to(np.array([10, 100, 200], np.uint8), IMAGES.shape)
    np.testing.assert_array_equal(data.corrupt(flat, kind, 4, KEYS), flat)


@pytest.mark.slow
def test_noise_has_its_published_size():
    grey = np.full((20, 32, 32, 3), 128, np.uint8)
    keys = jax.random.split(jax.random.key(1), 20)
    noise = {k: data.corrupt(grey, k, 5, keys) for k in ("gaussian_noise", "shot_noise")}
    assert noise["gaussian_noise"].std() / 255 == pytest.approx(0.1, rel=0.03)
    assert noise["shot_noise"].std() / 255 == pytest.approx(np.sqrt(128 / 255 / 50), rel=0.03)
    impulses = data.corrupt(grey, "impulse_noise", 5, keys)
    assert np.mean(impulses != 128) == pytest.approx(0.07, rel=0.1)
    assert {*np.unique(impulses)} == {0, 128, 255}


@pytest.mark.slow
def test_noise_is_that_of_the_image_and_not_of_its_place():
    order = np.array([4, 2, 0, 5, 1, 3])
    for kind in ("gaussian_noise", "motion_blur"):
        corrupted = data.corrupt(IMAGES, kind, 3, KEYS)
        permuted = data.corrupt(IMAGES[order], kind, 3, KEYS[order])
        np.testing.assert_allclose(permuted, corrupted[order], atol=1)


def test_light_and_pixels_have_closed_forms():
    unit = IMAGES / 255
    darker = unit * 0.5
    brighter = data.corrupt(darker, "brightness", 3, KEYS) / 255
    value = darker.max(-1, keepdims=True)
    np.testing.assert_allclose(brighter, darker * np.minimum(value + 0.15, 1) / value, atol=0.003)
    black = data.corrupt(np.zeros_like(IMAGES), "brightness", 5, KEYS)
    assert {*np.unique(black)} == {round(0.3 * 255)}
    mean = unit.mean((1, 2), keepdims=True)
    flat = data.corrupt(IMAGES, "contrast", 5, KEYS) / 255
    np.testing.assert_allclose(flat, mean + 0.15 * (unit - mean), atol=0.003)
    images = np.kron(IMAGES[:, :4, :4], np.ones((1, 4, 4, 1), np.uint8))  # 16 x 16, boxes of 4.
    coarse = data.corrupt(images, "pixelate", 4, KEYS)  # 12 x 12, each 4/3 of a pixel.
    np.testing.assert_array_equal(coarse[:, ::4, ::4], images[:, ::4, ::4])
    dot = np.zeros((6, 9, 9, 1), np.uint8)
    dot[:, 4, 4] = 255
    blurred = data.corrupt(dot, "gaussian_blur", 5, KEYS).astype(float)
    assert blurred[0, 4, 4, 0] / 255 == pytest.approx(1 / (2 * np.pi), rel=0.02)


def test_jpeg_is_pillow_s():
    corrupted = data.corrupt(IMAGES, "jpeg", 2, KEYS)
    stream = io.BytesIO()
    Image.fromarray(IMAGES[3]).save(stream, "JPEG", quality=65)
    np.testing.assert_array_equal(corrupted[3], np.asarray(Image.open(stream)))
    assert change("jpeg", 5, IMAGES[..., :1]) > 0
    with pytest.raises(UsageError, match="have 2 channels; JPEG expects 1 or 3"):
        data.corrupt(IMAGES[..., :2], "jpeg", 1, KEYS)


def test_unknown_corruptions_are_refused():
    with pytest.raises(UsageError, match="kind is 'fog'; available: gaussian_noise, shot_noise"):
        data.corrupt(IMAGES, "fog", 1, KEYS)
    with pytest.raises(UsageError, match="severity=6; expected 1, 2, 3, 4 or 5"):
        data.corrupt(IMAGES, "jpeg", 6, KEYS)
    arguments = (lambda x: x.reshape(len(x), -1), IMAGES / np.float32(255), np.arange(6))
    with pytest.raises(UsageError, match=r"has 'corruptions'; .*`data.corrupt` has them"):
        evaluate(*arguments, jax.random.key(0), suite="corruptions", epsilon=0.1)


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_a_run_has_a_line_for_each_kind_and_severity(finished, capsys, monkeypatch):
    monkeypatch.setattr(data, "KINDS", ("contrast", "jpeg"))
    modes.evaluate(finished_runs.config(evaluation="corruptions"), finished)
    results = [
        line
        for line in files.read_json_lines(finished / "results.jsonl")
        if lines.is_corruption(line) and line["attacked"]["checkpoint"] == "best"
    ]
    places = [(line["conditions"]["kind"], line["conditions"]["severity"]) for line in results]
    assert places == [(k, s) for k in ("contrast", "jpeg") for s in range(1, 6)]
    test, logits_fn = data.load("synthetic").test, trained.load(finished).classifier.logits_fn
    keys = jax.random.split(jax.random.key(0), len(test.labels))
    for line in (results[4], results[9]):
        kind = line["conditions"]["kind"]
        images = data.to_unit(jnp.asarray(data.corrupt(test.images, kind, 5, keys)))
        right = np.argmax(Partial(logits_fn)(images), -1) == test.labels
        assert line["outcome"]["accuracy"] == pytest.approx(float(right.mean()), abs=1e-6)
    output = " ".join(capsys.readouterr().out.split())
    assert "which are not those of CIFAR-10-C" in output and "| jpeg " in output
    (grid,) = corruption_table.corruption_grids([finished])
    means = [float(row[-1]) for row in grid.body]
    assert means[-1] == pytest.approx(sum(means[:2]) / 2, abs=0.11)
    assert "contrast" not in tables.runs_table([finished])
    assert len(STRENGTHS) + 1 == 10
