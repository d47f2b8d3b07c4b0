"""Augmentation against a NumPy oracle: offsets, flips, padding, independence of the batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from slow_cases import slow

from cat_jax.data import crop_flip, cutmix, erase, to_unit, unchanged
from cat_jax.errors import UsageError

augment = jax.jit(crop_flip, static_argnames=("padding", "mode"))


def _keys(num_examples, seed=0):
    return jax.random.split(jax.random.key(seed), num_examples)


def _candidates(image, padding, mode):
    """Every outcome for one image: {(top, left, flipped): image}."""
    edges = ((padding, padding), (padding, padding), (0, 0))
    padded = np.pad(image, edges, mode=mode)
    height, width, _ = image.shape
    return {
        (top, left, flipped): padded[top : top + height, left : left + width][:, :: 1 - 2 * flipped]
        for top in range(2 * padding + 1)
        for left in range(2 * padding + 1)
        for flipped in (0, 1)
    }


@pytest.mark.parametrize(
    "mode, shape",
    [
        ("reflect", (6, 6, 3)),
        slow("reflect", (5, 8, 1)),
        slow("constant", (6, 6, 3)),
        ("constant", (5, 8, 1)),
    ],
)
def test_every_offset_and_flip_occurs_and_no_other_image(mode, shape):
    padding, num_examples = 1, 400
    image = np.random.default_rng(0).random(shape, np.float32)
    images = augment(
        _keys(num_examples), np.tile(image, (num_examples, 1, 1, 1)), padding=padding, mode=mode
    )
    images = np.asarray(images)
    assert images.dtype == np.float32
    outcomes = {got.tobytes() for got in images}
    want = _candidates(image, padding, mode)
    assert len(want) == 18
    assert outcomes == {candidate.tobytes() for candidate in want.values()}


def test_offsets_are_uniform_and_half_of_the_images_are_mirrored():
    rows, columns = np.meshgrid(np.arange(8.0), np.arange(8.0), indexing="ij")
    image = (100 + rows * 8 + columns)[..., None].astype(np.float32)
    tiled = np.tile(image, (4000, 1, 1, 1))
    images = np.asarray(augment(_keys(4000), tiled, padding=2, mode="constant"))
    mirrored = images[:, 4, 3, 0] > images[:, 4, 4, 0]
    upright = np.where(mirrored[:, None, None], images[:, :, ::-1, 0], images[..., 0])
    shift = upright[:, 4, 4] - image[4, 4, 0]
    tops, lefts = np.divmod(shift + 18, 8)
    for offsets in (tops, lefts):
        counts = np.bincount(offsets.astype(int), minlength=5)
        assert counts.shape == (5,) and (abs(counts - 800) < 130).all()  # 5 standard deviations
    assert abs(int(mirrored.sum()) - 2000) < 160


@pytest.mark.slow
def test_an_examples_augmentation_does_not_depend_on_its_batch():
    images = np.random.default_rng(0).random((6, 8, 8, 3), np.float32)
    keys = _keys(6)
    together = augment(keys, images)
    order = np.array([4, 0, 5, 2, 1, 3])
    np.testing.assert_array_equal(augment(keys[order], images[order]), together[order])
    np.testing.assert_array_equal(augment(keys[3:4], images[3:4]), together[3:4])


def test_no_padding_leaves_only_the_flip():
    images = np.random.default_rng(0).random((20, 4, 4, 1), np.float32)
    for got, image in zip(np.asarray(augment(_keys(20), images, padding=0)), images, strict=True):
        assert (got == image).all() or (got == image[:, ::-1]).all()


def test_float64_images_stay_float64(float64):
    images = jnp.asarray(np.random.default_rng(0).random((3, 8, 8, 1)))
    assert augment(_keys(3), images).dtype == jnp.float64


def test_unknown_modes_and_too_much_padding_are_refused():
    images = np.zeros((2, 8, 8, 1), np.float32)
    with pytest.raises(UsageError, match="'wrap' is unknown; available: reflect, constant"):
        crop_flip(_keys(2), images, mode="wrap")
    with pytest.raises(UsageError, match="8x8 by 8 pixels; padding must be 0 to 7"):
        crop_flip(_keys(2), images, padding=8)


def test_all_256_pixel_values_become_float32_fractions_of_255():
    pixels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    want = pixels.astype(np.float32) / np.float32(255)
    for function in (to_unit, jax.jit(to_unit)):
        got = function(pixels)
        assert got.dtype == jnp.float32 and got.min() == 0 and got.max() == 1
        np.testing.assert_allclose(got, want, rtol=1.2e-7)


def test_floats_are_left_as_they_are_and_other_integers_refused():
    images = np.random.default_rng(0).random((2, 4, 4, 1), np.float32)
    np.testing.assert_array_equal(to_unit(images), images)
    with pytest.raises(UsageError, match="int32; expected uint8"):
        to_unit(np.zeros((2, 4, 4, 1), np.int32))


def test_unchanged_is_an_augmentation_that_does_nothing():
    images = np.ones((2, 4, 4, 1), np.float32)
    assert unchanged(_keys(2), images) is images


def rectangles(inside):
    """Whether each mask [B, H, W] is a rectangle, or empty."""
    rows, columns = inside.any(axis=2), inside.any(axis=1)
    filled = (inside == (rows[:, :, None] & columns[:, None])).all(axis=(1, 2))
    return filled & (np.abs(np.diff(rows.astype(int), axis=1)).sum(axis=1) <= 2)


def test_erasing_sets_a_rectangle_to_0_with_its_probability():
    images = np.ones((2000, 16, 16, 3), np.float32)
    erased = np.asarray(jax.jit(erase, static_argnames="probability")(_keys(2000), images, 0.25))
    inside = erased[..., 0] == 0
    assert (erased == ~inside[..., None]).all() and rectangles(inside).all()
    assert abs(inside.any(axis=(1, 2)).mean() - 0.25) < 0.05
    area = inside.mean(axis=(1, 2))
    assert 0.25 < area.max() < 0.36 and (erased[~inside.any(axis=(1, 2))] == 1).all()


def test_cutmix_pastes_a_rectangle_of_the_neighbour_and_shares_the_label_by_area():
    labels = np.arange(1000)
    images = np.broadcast_to(labels[:, None, None, None], (1000, 8, 8, 3)).astype(np.float32)
    mixed, new = jax.jit(cutmix, static_argnames="probability")(_keys(1000), images, labels, 0.5)
    inside = np.asarray(mixed[..., 0] != images[..., 0])
    assert (new.first == labels).all() and (new.second == labels + 1 - 2 * (labels % 2)).all()
    np.testing.assert_allclose(new.share, 1 - inside.mean(axis=(1, 2)), rtol=1e-6)
    neighbours = np.where(inside[..., None], images[new.second], images)
    np.testing.assert_array_equal(mixed, neighbours)
    assert rectangles(inside).all() and 0.4 < inside.any(axis=(1, 2)).mean() < 0.55
    halves = jax.jit(cutmix, static_argnames="probability")(
        _keys(1000)[4:8], images[4:8], labels[4:8], 0.5
    )
    np.testing.assert_array_equal(halves[0], mixed[4:8])
    with pytest.raises(UsageError, match="pairs the images of a device, which has 3"):
        cutmix(_keys(3), images[:3], labels[:3], 0.5)
