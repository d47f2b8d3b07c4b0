"""`tfds:NAME`: prepared folders with any name, size and splits; and Tiny ImageNet's archive."""

import hashlib
import io
import json
import types
import zipfile

import numpy as np
import pytest
import small_runs
import tfds_writer
from PIL import Image

from cat_jax import data
from cat_jax.cli.prepared import prepare
from cat_jax.data import tiny_imagenet_images as tiny_imagenet
from cat_jax.data.__main__ import main
from cat_jax.data.prepare import prepare as prepare_data
from cat_jax.errors import UsageError
from cat_jax.evaluation import result_lines


def examples(size, shape=(8, 8, 3), classes=3, seed=0):
    rng = np.random.default_rng(seed)
    labels = (np.arange(size) % classes).astype(np.int32)
    return data.Split(rng.integers(0, 256, (size, *shape), np.uint8), labels)


def assert_same(split, expected):
    for ours, theirs in zip(split, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_any_prepared_folder_is_read_with_its_size_classes_and_splits(tmp_path):
    splits = {"train": examples(9), "test": examples(6, seed=1), "extra": examples(5, seed=2)}
    tfds_writer.write(tmp_path / "flowers/1.2.0", splits, num_classes=3)
    (tmp_path / "flowers/1.2.0/label.labels.txt").write_text("daisy\nrose\ntulip\n")
    loaded = data.load("tfds:flowers", str(tmp_path))
    assert loaded.name == "tfds:flowers" and loaded.class_names == ("daisy", "rose", "tulip")
    assert_same(loaded.train, splits["train"])
    assert_same(loaded.test, splits["test"])


def test_grey_images_a_config_and_a_validation_split(tmp_path):
    splits = {"train": examples(9, (6, 6, 1)), "validation": examples(4, (6, 6, 1), seed=1)}
    tfds_writer.write(tmp_path / "shapes/small/1.0.0", splits, num_classes=3)
    loaded = data.load("tfds:shapes/small", str(tmp_path))
    assert loaded.class_names == ("0", "1", "2")
    assert_same(loaded.train, splits["train"])
    assert_same(loaded.test, splits["validation"])


def test_without_a_test_split_a_fifth_of_each_class_is_set_aside(tmp_path):
    tfds_writer.write(tmp_path / "one/1.0.0", {"train": examples(30)}, num_classes=3)
    loaded = data.load("tfds:one", str(tmp_path))
    assert np.bincount(loaded.test.labels).tolist() == [2, 2, 2]
    assert len(loaded.train.labels) == 24
    assert data.load("tfds:one", str(tmp_path)).fingerprint == loaded.fingerprint


def changed(folder, change):
    file = folder / "features.json"
    content = json.loads(file.read_text())
    change(content["featuresDict"]["features"])
    file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda f: f.pop("label"), r"has the features image, images of shape \[8, 8, 3\] and 0 cl"),
        (lambda f: f["image"]["image"].pop("shape"), r"images of shape \[\] and 3 classes; expect"),
        (
            lambda f: f["image"]["image"]["shape"].update(dimensions=["8", "9", "3"]),
            r"An image of tfds:flowers is 8x9; expected squares",
        ),
    ],
)
def test_a_data_set_without_square_images_and_labels_is_refused(change, message, tmp_path):
    tfds_writer.write(tmp_path / "flowers/1.0.0", {"train": examples(9)}, num_classes=3)
    changed(tmp_path / "flowers/1.0.0", change)
    with pytest.raises(UsageError, match=message) as error:
        data.load("tfds:flowers", str(tmp_path))
    assert "\n" not in str(error.value)


def test_a_name_that_is_not_prepared_is_answered_with_the_command(tmp_path, capsys):
    message = rf"run `python -m cat_jax.data --dataset=tfds:svhn_cropped --data_dir={tmp_path}`"
    with pytest.raises(UsageError, match=message):
        data.load("tfds:svhn_cropped", str(tmp_path))
    arguments = ["--dataset=tfds:flowers", f"--data_dir={tmp_path}"]
    assert main([*arguments, "--source=."]) == 2
    assert "tfds:flowers has no archives to read" in capsys.readouterr().err
    tfds_writer.write(tmp_path / "flowers/1.0.0", {"train": examples(9)}, num_classes=3)
    assert main(arguments) == 0
    assert "tfds:flowers is there already" in capsys.readouterr().out


def test_a_run_on_it_is_built_and_its_results_name_it(tmp_path):
    splits = {"train": examples(40), "test": examples(6, seed=1)}
    tfds_writer.write(tmp_path / "flowers/1.0.0", splits, num_classes=3)
    fields = {"dataset": "tfds:flowers", "data_dir": str(tmp_path), "num_validation": 8}
    run = prepare(small_runs.quick_config(**fields), tmp_path / "run")
    checkpoint = types.SimpleNamespace(step=1, meta={})
    attacked = result_lines.attacked_run(run.experiment, run.dataset, "last", checkpoint)
    assert attacked["dataset"] == "tfds:flowers" and run.dataset.spec.num_classes == 3


def jpeg(value, mode="RGB"):
    file = io.BytesIO()
    Image.new(mode, (64, 64), value).save(file, "JPEG")
    return file.getvalue()


def test_tiny_imagenet_is_read_from_its_archive(tmp_path):
    root = tiny_imagenet.ROOT
    members = {
        f"{root}/wnids.txt": b"n02\nn01\n",
        f"{root}/train/n01/images/n01_0.JPEG": jpeg((200, 200, 200)),
        f"{root}/train/n02/images/n02_0.JPEG": jpeg(40, "L"),
        f"{root}/train/n02/images/n02_1.JPEG": jpeg((90, 90, 90)),
        f"{root}/train/n02/n02_boxes.txt": b"n02_0.JPEG 0 0 1 1\n",
        f"{root}/val/images/val_0.JPEG": jpeg((10, 10, 10)),
        f"{root}/val/images/val_1.JPEG": jpeg((20, 20, 20)),
        f"{root}/val/val_annotations.txt": b"val_1.JPEG\tn01\t0\t0\nval_0.JPEG\tn02\t0\t0\n",
    }
    with zipfile.ZipFile(tmp_path / tiny_imagenet.FILE, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    splits = tiny_imagenet.read(tmp_path)

    def pairs(split):
        return list(zip(split.images[:, 0, 0, 0].tolist(), split.labels.tolist(), strict=True))

    assert pairs(splits["train"]) == [(200, 0), (40, 1), (90, 1)]
    assert pairs(splits["test"]) == [(10, 1), (20, 0)]
    md5 = hashlib.md5((tmp_path / tiny_imagenet.FILE).read_bytes()).hexdigest()
    checksums = {tiny_imagenet.FILE: md5}
    prepare_data("tiny_imagenet", str(tmp_path / "data"), str(tmp_path), checksums)
    loaded = data.load("tiny_imagenet", str(tmp_path / "data"))
    assert loaded.num_classes == 200 and loaded.spec.image_shape == (64, 64, 3)
    assert sorted(pairs(loaded.train)) == sorted(pairs(splits["train"]))
