"""Images of one's own: folders and .npz files as they are, and what is refused with the remedy."""

import logging

import numpy as np
import pytest
import small_runs
from PIL import Image

from cat_jax.cli import modes
from cat_jax.data import Spec, load, own_images
from cat_jax.errors import UsageError
from cat_jax.experiment.network import build_networks
from cat_jax.networks import MaskNet
from cat_jax.report import mask_gallery
from cat_jax.runtime.registry import find, records_of

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (40, 8, 8), np.uint8)
COLOUR = RNG.integers(0, 256, (40, 8, 8, 3), np.uint8)
LABELS = np.arange(40) % 4


def put(folder, **images):
    """Writes `folder`/NAME.png, "/" for "__" in the names."""
    for name, pixels in images.items():
        file = folder / f"{name.replace('__', '/')}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    return folder


def in_splits(folder, images):
    """Three images to train and one to test of each of the classes 10, 9 and 2."""
    names = [f"train__{c}__{i}" for c in (10, 9, 2) for i in range(3)]
    names += [f"test__{c}__0" for c in (10, 9, 2)]
    return put(folder, **dict(zip(names, images, strict=False)))


@pytest.mark.parametrize("images", [GREY, COLOUR], ids=["grey", "colour"])
def test_a_folder_for_each_class_of_each_split(images, tmp_path):
    found = load("own", str(in_splits(tmp_path, images)))
    assert found.class_names == ("2", "9", "10"), "in the order of the numbers"
    assert found.spec == Spec((8, 8, images[0].ndim == 2 or 3), num_classes=3, num_train=9)
    assert found.train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    order = [6, 7, 8, 3, 4, 5, 0, 1, 2]
    np.testing.assert_array_equal(found.train.images.reshape(images[:9].shape), images[order])
    np.testing.assert_array_equal(found.test.images.reshape(images[:3].shape), images[[11, 10, 9]])
    assert found.fingerprint == load("own", str(tmp_path)).fingerprint
    put(tmp_path, train__2__0=images[20])
    assert found.fingerprint != load("own", str(tmp_path)).fingerprint


def test_without_splits_one_in_five_of_each_class_is_the_test_split(tmp_path):
    put(tmp_path, **{f"cat__{i:02}": GREY[i] for i in range(11)})
    put(tmp_path, **{f"ape__a__{i:02}": GREY[i] for i in range(11, 15)})
    found, again = (load("own", str(tmp_path)) for _ in range(2))
    assert found.class_names == ("ape", "cat")
    assert np.bincount(found.train.labels).tolist() == [3, 9]
    assert np.bincount(found.test.labels).tolist() == [1, 2]
    every = np.concatenate([found.train.images, found.test.images])[..., 0]
    np.testing.assert_array_equal(np.sort(every.ravel()), np.sort(GREY[:15].ravel()))
    assert found.fingerprint == again.fingerprint


def test_grey_images_among_coloured_ones_have_three_equal_channels(tmp_path, caplog):
    put(tmp_path, a__1=GREY[0], a__2=GREY[1], b__1=COLOUR[0], b__2=COLOUR[1])
    (tmp_path / "a" / "notes.txt").write_text("")
    (tmp_path / "a" / ".hidden").write_text("")
    with caplog.at_level(logging.WARNING, "cat_jax"):
        images, labels = own_images.read(tmp_path)[1]["all"]
    assert labels.tolist() == [0, 0, 1, 1]
    np.testing.assert_array_equal(images[0], np.repeat(GREY[0][..., None], 3, -1))
    np.testing.assert_array_equal(images[2:], COLOUR[:2])
    assert "1 files ignored (notes.txt)" in caplog.text


ARRAYS = {
    "uint8": dict(x_train=GREY, y_train=LABELS, x_test=GREY[:4], y_test=LABELS[:4]),
    "floats": dict(
        x_train=GREY / np.float32(255), y_train=LABELS, x_test=GREY[:4] / 255, y_test=LABELS[:4]
    ),
    "columns": dict(
        train_images=GREY[..., None],
        train_labels=LABELS[:, None],
        test_images=GREY[:4, ..., None],
        test_labels=LABELS[:4, None],
    ),
    "text": dict(
        train_image=GREY,
        train_label=np.array(list("abcd"))[LABELS],
        test_image=GREY[:4],
        test_label=np.array(list("abcd")),
    ),
}


@pytest.mark.parametrize("form", ARRAYS)
def test_every_form_of_an_archive_gives_the_same_data(form, tmp_path, caplog):
    np.savez(tmp_path / "x.npz", **ARRAYS[form])
    found = load("own", str(tmp_path / "x.npz"))
    np.testing.assert_array_equal(found.train.images[..., 0], GREY)
    np.testing.assert_array_equal(found.test.labels, LABELS[:4])
    assert found.class_names == tuple("abcd" if form == "text" else "0123")
    assert not caplog.records


def test_an_archive_without_splits_is_split_and_names_are_kept(tmp_path, caplog):
    names = np.array(["ape", "bee", "cat", "dog"])
    np.savez(tmp_path / "x.npz", images=COLOUR, labels=LABELS, class_names=names, more=LABELS)
    found = load("own", str(tmp_path / "x.npz"))
    assert found.class_names == ("ape", "bee", "cat", "dog")
    assert np.bincount(found.test.labels).tolist() == [2, 2, 2, 2]
    assert "arrays are not read: more" in caplog.text


def test_floats_between_the_grey_levels_are_rounded_and_that_is_said(tmp_path, caplog):
    np.savez(tmp_path / "x.npz", x=np.full((8, 8, 8), 0.5), y=np.arange(8) % 2)
    assert (load("own", str(tmp_path / "x.npz")).train.images == 128).all()
    assert "rounded to 8 bits, by up to 0.50/255" in caplog.text


WIDE, WHOLE = np.full((8, 9), 200, np.uint8), np.full((8, 8), 200, np.uint8)
FOLDERS = {
    "neither a folder nor an .npz": {},
    "no folders; expected one of images for each class": dict(a=WHOLE),
    "has the one class a; expected two or more": dict(a__1=WHOLE),
    "8x9; expected squares of at most 128 pixels a side. .*ImageOps.fit": dict(
        a__1=WIDE, b__1=WIDE
    ),
    "130x130; expected squares of at most": dict(a__1=np.zeros((130, 130), np.uint8), b__1=WHOLE),
    "b/1.png is 8x9, and .*a/1.png is 8x8; expected one size": dict(a__1=WHOLE, b__1=WIDE),
    "has only one of train and test, train": dict(train__a__1=WHOLE, b__1=WHOLE),
    "train and test differ in the class c; correct": dict(
        train__a__1=WHOLE, train__b__1=WHOLE, test__a__1=WHOLE, test__c__1=WHOLE, test__b__1=WHOLE
    ),
    "has a class with 1 image, and no test split": dict(a__1=WHOLE, a__2=WHOLE, b__1=WHOLE),
    "has no pixel above 1 of 255": {f"{c}__{i}": WHOLE // 200 for c in "ab" for i in (1, 2)},
    "1.png has mode I;16; .*/ 257": dict(a__1=np.full((8, 8), 999, np.uint16), b__1=WHOLE),
    "has mode RGBA; expected grey or RGB .*convert": dict(
        a__1=np.zeros((8, 8, 4), np.uint8), b__1=WHOLE
    ),
}


@pytest.mark.parametrize("message", FOLDERS)
def test_a_folder_that_will_not_do_is_answered_with_the_remedy(message, tmp_path):
    folder = put(tmp_path / "own", **FOLDERS[message])
    with pytest.raises(UsageError, match=message) as raised:
        load("own", str(folder))
    assert "\n" not in str(raised.value) and str(folder) in str(raised.value)


def test_a_damaged_image_and_a_class_without_any_are_named(tmp_path):
    put(tmp_path, a__1=WHOLE, b__1=WHOLE)
    (tmp_path / "b" / "1.png").write_bytes((tmp_path / "a" / "1.png").read_bytes()[:40])
    with pytest.raises(UsageError, match=r"b/1.png cannot be read \(.*\); repair or delete it"):
        load("own", str(tmp_path))
    (tmp_path / "b" / "1.png").rename(tmp_path / "b" / "1.tif")
    with pytest.raises(UsageError, match=r"b has no image; expected .png, .jpg"):
        load("own", str(tmp_path))


BAD_ARRAYS = {
    "arrays a; expected x_train, y_train": dict(a=GREY),
    r"shape \[40, 3, 8, 8\]; .*moveaxis": dict(x=np.moveaxis(COLOUR, -1, 1), y=LABELS),
    "8x7; expected squares": dict(x=GREY[..., :7], y=LABELS),
    r"is int64 with values from 0 to 255; .*images.astype\(numpy.uint8\)": dict(
        x=GREY.astype(np.int64), y=LABELS
    ),
    "is uint16 with values from 0 to 6.554e.04; .*: images / 65535": dict(
        x=GREY.astype(np.uint16) * 257, y=LABELS
    ),
    r"is bool with values from 0 to 1; .*images.astype\(numpy.float32\)": dict(
        x=GREY > 99, y=LABELS
    ),
    "has no pixel above 1 of 255: .* multiply them by 255": dict(
        x=(GREY > 99).astype(np.uint8), y=LABELS
    ),
    "values from -1 to 1; expected .* normalisation": dict(
        x=np.tile([-1.0, 1], (4, 2, 1)), y=LABELS[:4]
    ),
    "values from nan to nan": dict(x=np.full((4, 8, 8), np.nan), y=LABELS[:4]),
    r"shape \[40, 4\]; .*argmax": dict(x=GREY, y=np.eye(4, dtype=int)[LABELS]),
    "float64 of shape": dict(x=GREY, y=LABELS + 0.5),
    "no training image of class 0; expected": dict(x=GREY, y=LABELS + 1),
    "int64 of shape .* from 0": dict(x=GREY, y=LABELS - 1),
    "40 images and labels of shape": dict(x=GREY, y=LABELS[:8]),
    "'b', which is not among class_names": dict(
        x=GREY, y=np.array(["a", "b"])[LABELS % 2], class_names=["a", "c"]
    ),
    "labels from 0 to 3; expected 0 to 1": dict(x=GREY, y=LABELS, class_names=["a", "c"]),
    "images of the shapes": dict(x_train=GREY, y_train=LABELS, x_test=COLOUR, y_test=LABELS),
    "cannot be read .*numpy.savez": dict(x=GREY, y=np.array([None] * 40)),
}


@pytest.mark.parametrize("message", BAD_ARRAYS)
def test_an_archive_that_will_not_do_is_answered_with_the_remedy(message, tmp_path):
    np.savez(tmp_path / "x.npz", **BAD_ARRAYS[message])
    with pytest.raises(UsageError, match=message) as raised:
        load("own", str(tmp_path / "x.npz"))
    assert "\n" not in str(raised.value)


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"no archive")
    with pytest.raises(UsageError, match=r"x.npz cannot be read"):
        load("own", str(tmp_path / "x.npz"))


@pytest.mark.parametrize("name", records_of(MaskNet))
def test_a_mask_network_says_which_sides_it_takes(name):
    made = small_runs.config(**{"mask_net.name": name, "mask_net.sees": "sum"})
    multiple = find(MaskNet, "name", name).multiple
    build_networks(made, Spec((3 * multiple, 3 * multiple, 1), 4, 40))
    if multiple > 1:
        with pytest.raises(
            UsageError, match=f"multiples of {multiple}; the images are 29x29: .*Ones"
        ):
            build_networks(made, Spec((29, 29, 1), 4, 40))


@pytest.mark.parametrize("names", [("ape", "bee"), ("0", "1")])
def test_pictures_have_the_names_of_the_classes_unless_they_are_numbers(names, tmp_path):
    views = {name: np.zeros((2, 8, 8, 1)) for name in mask_gallery.VIEWS}
    views |= {"labels": np.arange(2), "predicted": np.zeros((2, 3), int)}
    np.savez(tmp_path / "masks.npz", class_names=np.array(names), **views)
    found = mask_gallery.read(tmp_path / "masks.npz")
    assert list(found.get("class_names", ())) == (["ape", "bee"] if "ape" in names else [])


@pytest.mark.slow
def test_a_run_on_images_of_ones_own_keeps_the_names_of_the_classes(tmp_path):
    """In colour, of an odd number of classes, 12x12; trained, attacked, and shown."""
    labels = np.arange(90) % 3
    images = np.random.default_rng(1).integers(0, 90, (90, 12, 12, 3))
    images[..., 0] += 70 * labels[:, None, None]
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        put(tmp_path / "own", **{f"{['ape', 'bee', 'cat'][label]}__{i:03}": np.uint8(image)})
    of_own = dict(dataset="own", data_dir=str(tmp_path / "own"), num_validation=9)
    workdir = tmp_path / "run"
    assert modes.train(small_runs.config(**of_own, evaluation="natural,standard"), workdir)
    assert small_runs.manifest(workdir)["meta"]["class_names"] == ["ape", "bee", "cat"]
    with np.load(workdir / "masks.npz") as kept:
        assert kept["class_names"].tolist() == ["ape", "bee", "cat"]
        assert kept["mask"].shape == (3, 12, 12, 3)
    put(tmp_path / "own", ape__000=np.uint8(images[1]))
    with pytest.raises(UsageError, match="was created with other data"):
        modes.evaluate(small_runs.config(**of_own), workdir)
