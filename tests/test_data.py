"""Data sets by name: counts, types, splits, fingerprints, and errors that name the remedy."""

import os
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
import tfds_writer
from slow_cases import slow

from cat_jax.data import (
    Source,
    Spec,
    Split,
    balanced,
    fingerprint,
    load,
    spec,
    split_validation,
    tfds_folder,
)
from cat_jax.data.archives import tfds_order
from cat_jax.errors import UsageError
from cat_jax.runtime.registry import register


def test_digits_has_1437_and_360_images_with_36_of_each_class_in_the_test_split():
    digits = load("digits")
    assert digits.train.images.shape == (1437, 8, 8, 1)
    assert digits.test.images.shape == (360, 8, 8, 1)
    assert (np.bincount(digits.test.labels) == 36).all()
    assert digits.num_classes == len(np.unique(digits.train.labels)) == 10


def test_digits_are_the_bundled_pixels_on_the_scale_of_bytes_each_used_once():
    from sklearn.datasets import load_digits

    digits = load("digits")
    got = np.concatenate([digits.train.images, digits.test.images]).reshape(1797, 64)
    want = np.round(load_digits().data * 255 / 16)
    assert got.dtype == np.uint8 and got.max() == 255
    np.testing.assert_array_equal(np.unique(got, axis=0), np.unique(want, axis=0))


def test_synthetic_data_is_told_apart_by_the_nearest_class_mean():
    data = load("synthetic")
    assert data.train.images.shape == (256, 8, 8, 3) and data.test.images.shape == (64, 8, 8, 3)
    means = np.stack([data.train.images[data.train.labels == k].mean(0) for k in range(10)])
    distances = ((data.test.images[:, None] - means) ** 2).sum((2, 3, 4))
    np.testing.assert_array_equal(distances.argmin(1), data.test.labels)


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_loading_twice_gives_the_same_data_and_types(name):
    once, again = load(name), load(name)
    assert once.fingerprint == again.fingerprint and len(once.fingerprint) == 64
    for split in (once.train, once.test):
        assert split.images.dtype == np.uint8 and split.labels.dtype == np.int32


def test_the_fingerprint_changes_with_a_pixel_a_label_the_order_and_the_shape():
    images = np.arange(32, dtype=np.uint8).reshape(2, 4, 4, 1)
    labels = np.array([0, 1], np.int32)
    pixel = images.copy()
    pixel[1, 2, 3, 0] += 1
    variants = [
        (Split(images, labels),),
        (Split(pixel, labels),),
        (Split(images, labels[::-1]),),
        (Split(images[::-1], labels[::-1]),),
        (Split(images.reshape(2, 2, 8, 1), labels),),
        (Split(images[:1], labels[:1]), Split(images[1:], labels[1:])),
    ]
    assert len({fingerprint(*variant) for variant in variants}) == len(variants)
    assert fingerprint(Split(images, labels)) == fingerprint(Split(images.copy(), labels.copy()))


def test_the_spec_holds_the_sizes_and_needs_no_files_of_published_data(tmp_path):
    digits = Spec((8, 8, 1), num_classes=10, num_train=1437)
    assert load("digits").spec == spec("digits") == digits
    assert spec("cifar100", str(tmp_path)) == Spec((32, 32, 3), 100, 50_000)
    with pytest.raises(UsageError, match="tfds:none is not prepared"):
        spec("tfds:none", str(tmp_path))


def _numbered(num_examples):
    images = np.arange(num_examples, dtype=np.uint8).reshape(-1, 1, 1, 1)
    return Split(images, np.arange(num_examples, dtype=np.int32))


def test_training_and_validation_are_disjoint_and_together_everything():
    train, validation = split_validation(_numbered(50), 20, seed=1)
    assert len(train.labels) == 30 and len(validation.labels) == 20
    assert sorted([*train.labels, *validation.labels]) == list(range(50))
    for split in (train, validation):
        np.testing.assert_array_equal(split.images.ravel(), split.labels)


def test_the_seed_alone_chooses_what_is_held_out():
    first, again, other = (split_validation(_numbered(50), 20, seed)[1] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.labels, again.labels)
    assert set(first.labels) != set(other.labels)


def test_holding_nothing_out_keeps_the_training_split_as_it_is():
    train, validation = split_validation(_numbered(5), 0, seed=0)
    np.testing.assert_array_equal(train.labels, np.arange(5))
    assert validation.images.shape == (0, 1, 1, 1) and validation.labels.shape == (0,)


def test_a_balanced_subset_has_as_many_of_each_class_and_is_the_seed_s():
    labels = np.random.default_rng(0).integers(0, 10, 2000)
    chosen = balanced(labels, 1000, seed=0)
    assert np.bincount(labels[chosen]).tolist() == [100] * 10
    assert np.all(np.diff(chosen) > 0), "in order, and none twice"
    np.testing.assert_array_equal(chosen, balanced(labels, 1000, seed=0))
    assert set(chosen) != set(balanced(labels, 1000, seed=1))
    assert set(balanced(labels, 500, seed=0)) < set(chosen), "smaller subsets are parts of larger"
    assert set(np.bincount(labels[balanced(labels, 64, seed=0)])) == {6, 7}
    np.testing.assert_array_equal(balanced(labels, 0, seed=0), np.arange(2000))


def test_a_class_with_too_few_examples_gives_all_it_has():
    labels = np.array([0] * 2 + [1] * 10 + [2] * 10)
    assert np.bincount(labels[balanced(labels, 12, seed=0)]).tolist() == [2, 5, 5]


@pytest.mark.parametrize("num_examples", [-1, 23])
def test_a_subset_larger_than_the_whole_is_refused(num_examples):
    with pytest.raises(UsageError, match=rf"Cannot choose {num_examples} of 22 .* 1 to 22"):
        balanced(np.zeros(22, int), num_examples, seed=0)


def test_the_first_examples_are_taken_in_order():
    first = _numbered(5).first(3)
    assert first.labels.tolist() == [0, 1, 2] and first.images.ravel().tolist() == [0, 1, 2]


@pytest.mark.parametrize("num_validation", [-1, 5, 6])
def test_holding_out_too_much_is_refused_with_the_numbers(num_validation):
    message = f"Cannot hold {num_validation} of 5 training examples .* must be 0 to 4"
    with pytest.raises(UsageError, match=message):
        split_validation(_numbered(5), num_validation, seed=0)


def test_an_unknown_data_set_is_answered_with_those_there_are():
    message = "^config.dataset is 'cifar'; available: cifar10, cifar100, digits, mnist, own, synth"
    with pytest.raises(UsageError, match=message):
        load("cifar")
    with pytest.raises(UsageError, match=r"a path; .*--config.dataset=own --config.data_dir=\.$"):
        load(".")


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((2, 4, 4, 1), np.float32), np.zeros(2, np.int32), "expected uint8"),
        (np.zeros((2, 4, 4), np.uint8), np.zeros(2, np.int32), r"shape \[2, 4, 4\]"),
        (np.zeros((2, 4, 4, 1), np.uint8), np.zeros(3, np.int32), "2 images and labels"),
        (np.zeros((2, 4, 4, 1), np.uint8), np.array([0, 10], np.int32), "from 0 to 10; expected 0"),
        (np.zeros((2, 4, 4, 1), np.uint8), np.array([-1, 1], np.int32), "from -1 to 1; expected 0"),
    ],
)
def test_data_of_the_wrong_form_are_refused(images, labels, message):
    split = Split(images, labels)
    register(Source("odd", lambda data_dir: (tuple("0123456789"), split, split)))
    with pytest.raises(UsageError, match=message):
        load("odd")


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "shapes", "fingerprint"),
    [
        ("mnist", ((60_000, 28, 28, 1), (10_000, 28, 28, 1)), "d0364b8d442f6845"),
        ("cifar10", ((50_000, 32, 32, 3), (10_000, 32, 32, 3)), "8a68284dc913ca98"),
    ],
)
def test_real_data_have_every_example(real_data, name, shapes, fingerprint):
    data = load(name, real_data)
    assert (data.train.images.shape, data.test.images.shape) == shapes
    assert data.fingerprint.startswith(fingerprint)
    assert data.spec == spec(name)
    assert (np.bincount(data.test.labels) > 800).all() and data.num_classes == 10


@pytest.mark.data
def test_mnists_first_pixels_are_those_that_tensorflow_datasets_decodes(real_data):
    import tensorflow_datasets as tfds

    folder = tfds_folder.find(Path(real_data) / "mnist", "command")
    images, labels = tfds_folder.read(folder, "test", (28, 28, 1), "command")
    source = tfds.data_source("mnist", split="test", data_dir=real_data)
    for i in range(20):
        np.testing.assert_array_equal(images[i], source[i]["image"])
        assert labels[i] == source[i]["label"]


@pytest.mark.data
@pytest.mark.parametrize("split", [slow("train"), "test"])
def test_archives_are_put_in_the_order_that_tensorflow_datasets_stores(real_data, split):
    import tensorflow_datasets as tfds

    folder = tfds_folder.find(Path(real_data) / "cifar10", "command")
    skip = {"image": tfds.decode.SkipDecoding()}
    source = tfds.builder_from_directory(folder).as_data_source(split, decoders=skip)
    ids = [example["id"].decode() for example in source.__getitems__(range(len(source)))]
    assert [f"{split}_{i:05d}" for i in tfds_order(split, len(ids))] == ids


@pytest.mark.data
def test_real_data_cut_short_are_refused_with_the_remedy(real_data, tmp_path):
    shutil.copytree(Path(real_data) / "mnist", tmp_path / "mnist")
    (file,) = tmp_path.glob("mnist/*/mnist-train.array_record*")
    file.parent.chmod(stat.S_IRWXU)
    file.chmod(stat.S_IRWXU)
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(UsageError, match=r"mnist-train.*delete .* and run .*--dataset=mnist"):
        load("mnist", str(tmp_path))


def test_what_was_decoded_is_kept_and_neither_damaged_nor_of_other_files(tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    images = np.random.default_rng(0).integers(0, 256, (20, 28, 28, 1)).astype(np.uint8)
    split = images, np.arange(20) % 10
    folder = tmp_path / "mnist" / "3.0.1"
    tfds_writer.write(folder, {"train": split, "test": split}, num_classes=10)
    decoded = []
    decode = tfds.builder_from_directory
    monkeypatch.setattr(
        tfds, "builder_from_directory", lambda *what: decoded.append(what) or decode(*what)
    )

    def read():
        return tfds_folder.read(folder, "test", (28, 28, 1), "command")

    first, labels = read()
    np.testing.assert_array_equal(first, images)
    (cached,) = (tmp_path / "cat_jax" / "data").iterdir()
    assert cached.name.startswith("mnist-test-") and len(decoded) == 1

    for harm, times in [(None, 1), (cached.stat().st_size // 2, 2), (cached.stat().st_size - 1, 3)]:
        if harm:
            os.truncate(cached, harm)
        again = read()
        np.testing.assert_array_equal(again[0], images)
        np.testing.assert_array_equal(again[1], labels)
        assert len(decoded) == times
    copy = tmp_path / "other" / "mnist" / folder.name
    shutil.copytree(folder, copy)
    (copy / "dataset_info.json").chmod(stat.S_IRWXU)
    (file,) = copy.glob("mnist-test.array_record*")
    file.rename(file.with_name(f"{file.name}x"))  # Other files, though of the same content.
    with pytest.raises(UsageError):
        tfds_folder.read(copy, "test", (28, 28, 1), "command")
