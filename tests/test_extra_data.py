"""Extra images: exact share, order as a function of the step, mapped from the disk, refusals."""

import chex
import jax
import numpy as np
import pytest
import small_runs

from cat_jax import data
from cat_jax.cli import modes
from cat_jax.cli.prepared import prepare
from cat_jax.data import extra_images
from cat_jax.errors import UsageError
from cat_jax.evaluation import result_lines
from cat_jax.experiment import settings
from cat_jax.storage import checkpoint

SPEC = data.Spec((2, 2, 3), 10, 12)


def numbered(size, start, shape=(2, 2, 3)):
    """Images that are all of one value, their number."""
    images = (
        np.full((size, *shape), 0, np.uint8)
        + np.arange(start, start + size, dtype=np.uint8)[:, None, None, None]
    )
    return data.Split(images, (np.arange(size) % 10).astype(np.int32))


def feed(num_devices=1, positions=None, **changes):
    arguments = dict(split=numbered(12, 0), extra=numbered(20, 100), num_extra=5, batch_size=8)
    positions = range(num_devices) if positions is None else positions
    arguments |= {"seed": 3, "num_devices": num_devices, "device_positions": positions}
    return data.Feed(**(arguments | changes))


def values(batch):
    return batch["image"][..., 0, 0, 0].ravel()


@pytest.fixture
def file(tmp_path):
    images, labels = numbered(20, 100)
    np.savez(tmp_path / "extra.npz", image=images, label=labels.astype(np.int64))
    return tmp_path / "extra.npz"


def test_a_batch_has_exactly_its_share_and_an_epoch_every_image_once():
    batches = [values(feed()(step)) for step in range(4)]
    assert all((batch >= 100).sum() == 5 for batch in batches)
    drawn = np.concatenate(batches)
    assert sorted(drawn[drawn >= 100]) == list(range(100, 120))
    assert sorted(drawn[drawn < 100]) == list(range(12))
    images, labels = (feed()(2)[name][0] for name in ("image", "label"))
    number = images[:, 0, 0, 0].astype(int)
    np.testing.assert_array_equal(labels, (number - 100 * (number >= 100)) % 10)


def test_float_images_of_a_users_data_set_stay_floats():
    split = data.Split(np.linspace(0, 1, 12 * 12).reshape(12, 2, 2, 3), np.arange(12))
    batch = feed(split=split, extra=None, num_extra=0)(0)
    assert batch["image"].dtype == np.float64
    np.testing.assert_array_equal(batch["image"][0], split.images[batch["label"][0]])


def test_the_order_depends_on_the_seed_and_the_step_alone():
    np.testing.assert_array_equal(feed()(7)["image"], feed()(7)["image"])
    orders = {tuple(values(feed(seed=seed)(0))) for seed in (0, 1)}
    assert len(orders) == 2
    same = numbered(20, 0)
    pair = feed(split=same, extra=same, num_extra=4)(0)
    assert set(values(pair)[0::2]) != set(values(pair)[1::2]), "two orders, also of equal sizes"


def test_one_device_reads_what_four_do_and_each_gets_its_share():
    whole = feed(batch_size=16, num_extra=8)(3)
    parts = feed(4, batch_size=16, num_extra=8)(3)
    for name in whole:
        np.testing.assert_array_equal(parts[name].reshape(whole[name].shape), whole[name])
    assert [(part >= 100).sum() for part in parts["image"][..., 0, 0, 0]] == [2] * 4
    own = feed(4, [2], batch_size=16, num_extra=8)(3)
    np.testing.assert_array_equal(own["image"][0], parts["image"][2])


def test_without_extra_images_the_order_is_that_of_the_split():
    plain = feed(extra=None, num_extra=0)(1)
    indices = data.batch_indices(3, 1, 12, 8)
    np.testing.assert_array_equal(values(plain), indices)


def test_stored_arrays_stay_on_the_disk_and_compressed_ones_are_equal(file):
    mapped = extra_images.load(str(file), SPEC)
    assert isinstance(mapped.images, np.memmap) and mapped.labels.dtype == np.int32
    np.testing.assert_array_equal(mapped.images, numbered(20, 100).images)
    compressed = file.with_name("compressed.npz")
    np.savez_compressed(compressed, image=mapped.images, label=mapped.labels.astype(np.int64))
    loaded = extra_images.load(str(compressed), SPEC)
    assert not isinstance(loaded.images, np.memmap)
    np.testing.assert_array_equal(loaded.images, mapped.images)
    assert extra_images.identity(str(compressed)) == extra_images.identity(str(file))


IMAGES, LABELS = numbered(20, 100)
REFUSED = {
    "no images": ({"x": IMAGES, "label": LABELS}, r"arrays x, label; expected image and label, "),
    "floats": ({"image": IMAGES / 255, "label": LABELS}, r"float64 \[20, 2, 2, 3\]; expec"),
    "channels first": (
        {"image": np.moveaxis(IMAGES, -1, 1), "label": LABELS},
        r"\[20, 3, 2, 2\]; expected \[20, 2, 2, 3\], as those of the training split",
    ),
    "one-hot": ({"image": IMAGES, "label": np.eye(20)}, r"float64 \[20, 20\]; expected whole"),
    "too few labels": ({"image": IMAGES, "label": LABELS[:9]}, r"\[9\]; expected whole .*\[20\]"),
    "unlabelled": ({"image": IMAGES, "label": LABELS - 1}, r"-1 to 8; expected 0.*pseudo-label"),
    "classes": ({"image": IMAGES, "label": LABELS + 1}, "are 1 to 10; expected 0 to 9"),
    "objects": ({"image": np.array([None]), "label": LABELS}, "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_arrays_of_another_form_are_refused_in_one_line(name, tmp_path):
    arrays, message = REFUSED[name]
    np.savez(tmp_path / "extra.npz", **arrays)
    with pytest.raises(UsageError, match=message) as error:
        extra_images.load(str(tmp_path / "extra.npz"), SPEC)
    assert "\n" not in str(error.value) and "config.extra_data.path" in str(error.value)


def test_a_file_that_is_absent_or_cut_short_is_refused(file, tmp_path):
    with pytest.raises(UsageError, match=r"absent.npz, which does not exist"):
        extra_images.load(str(tmp_path / "absent.npz"), SPEC)
    file.write_bytes(file.read_bytes()[:-300])
    with pytest.raises(UsageError, match=r"extra.npz cannot be read"):
        extra_images.load(str(file), SPEC)


@pytest.mark.parametrize("share, number", [(0.7, 90), (0.5, 64), (0.004, 1)])
def test_the_share_is_rounded_to_images(share, number):
    assert extra_images.number(share, 128) == number


def test_a_share_that_leaves_one_kind_alone_is_refused():
    with pytest.raises(
        UsageError, match=r"share is 0.9 of a batch of 4, 4 images; expected 1 to 3"
    ):
        extra_images.number(0.9, 4)
    for share in (0.0, 1.0):
        with pytest.raises(UsageError, match="expected a share above 0 and below 1"):
            settings.resolve(small_runs.quick_config(**{"extra_data.share": share}))


def test_only_training_reads_the_images_and_it_refuses_others_before_it_writes(file, tmp_path):
    config = small_runs.quick_config(**{"extra_data.path": str(file), "num_steps": 4})
    prepare(config, tmp_path / "run")  # As an evaluation does.
    with pytest.raises(UsageError, match="as those of the training split"):
        modes.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture
def more(tmp_path):
    """A file of training images as extra images, and its config."""
    train, path = data.load("synthetic").train, tmp_path / "more.npz"
    np.savez(path, image=train.images[:40], label=train.labels[:40])
    fields = {"extra_data.path": str(path), "extra_data.share": 0.25, "evaluation": "none"}
    return path, fields | {"cutmix": 0.5, "erasing": 0.5}


def trained(config, workdir):
    assert modes.train(config, workdir)
    return checkpoint.restore_arrays(checkpoint.newest(workdir / "checkpoints" / "last"))


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_a_run_of_cat_resumes_bitwise(more, tmp_path):
    def run(folder, num_steps):
        return trained(small_runs.config(num_steps=num_steps, **more[1]), tmp_path / folder)

    complete = run("complete", 4)
    run("resumed", 2)
    chex.assert_trees_all_equal(run("resumed", 4), complete)


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_a_run_resumes_bitwise_on_any_devices_and_refuses_other_images(more, tmp_path, monkeypatch):
    """With mixed and erased images. Plain training, because no attack then turns on rounding."""
    path, fields = more

    def config_of(num_steps):
        return small_runs.quick_config(num_steps=num_steps, **fields)

    def run(folder, num_steps):
        return trained(config_of(num_steps), tmp_path / folder)

    complete = run("complete", 4)
    run("resumed", 2)
    chex.assert_trees_all_equal(run("resumed", 4), complete)
    with monkeypatch.context() as patch:
        devices = jax.devices()
        assert len(devices) == 4
        patch.setattr(jax, "devices", lambda: devices[:1])
        chex.assert_trees_all_close(run("one_device", 4), complete, rtol=1e-4, atol=1e-5)
    prepared = prepare(config_of(4), tmp_path / "resumed")
    newest = checkpoint.newest(tmp_path / "resumed" / "checkpoints" / "last")
    attacked = result_lines.attacked_run(prepared.experiment, prepared.dataset, "last", newest)
    assert attacked["extra_data"] == {"share": 0.25, "sha": extra_images.identity(str(path))}
    train = data.load("synthetic").train
    np.savez(path, image=train.images[:40] // 2, label=train.labels[:40])
    with pytest.raises(UsageError, match="changed: their fingerprint was"):
        run("resumed", 6)
    with pytest.raises(UsageError, match=r"extra_data\.share"):
        prepare(small_runs.quick_config(num_steps=4), tmp_path / "resumed")
