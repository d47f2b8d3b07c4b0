"""Preparation from archives that these tests fabricate, and how it refuses what is not right."""

import gzip
import hashlib
import io
import os
import pickle
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import tfds_writer

from cat_jax.data import fingerprint, load, own_images, tfds_folder
from cat_jax.data.__main__ import main
from cat_jax.data.prepare import preparable, prepare
from cat_jax.errors import UsageError

CIFAR100, CIFAR10 = "cifar-100-python.tar.gz", "cifar-10-python.tar.gz"
NUM_TRAIN, NUM_TEST = 30, 20


def _python2_pickle(batch):
    """A dict of uint8 matrices and lists of small integers, as Python 2 and its NumPy pickled it.

    The published archives are of this form; Python 3 cannot write it, so it is assembled here.
    """
    parts = [b"\x80\x02}("]
    for key, value in batch.items():
        parts += [b"U", bytes([len(key)]), key.encode()]
        if isinstance(value, list):
            parts += [b"](", *(b"K" + bytes([item]) for item in value), b"e"]
            continue
        parts.append(b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\x01b\x87R")
        parts.append(b"(K\x01" + b"".join(b"J" + struct.pack("<i", n) for n in value.shape))
        parts.append(b"\x86cnumpy\ndtype\nU\x02u1K\0K\x01\x87R(K\x03U\x01|NNN")
        parts.append(b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89")
        parts += [b"T", struct.pack("<i", value.size), value.tobytes(), b"tb"]
    return b"".join([*parts, b"u."])


def _write_tar(path, members):
    """A .tar.gz of {name: bytes}; returns {file name: MD5}."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return {path.name: hashlib.md5(path.read_bytes()).hexdigest()}


def _batch(num_examples, seed):
    """A CIFAR-100 batch, and its images [N, 32, 32, 3]."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (num_examples, 3072), np.uint8)
    fine = rng.integers(0, 100, num_examples).tolist()
    batch = {"data": pixels, "fine_labels": fine, "coarse_labels": [k // 5 for k in fine]}
    return batch, pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def _cifar100(folder, dump=_python2_pickle):
    """A small CIFAR-100 archive in `folder`; returns its checksums, and what each split holds."""
    train, test = _batch(NUM_TRAIN, 0), _batch(NUM_TEST, 1)
    names = {"cifar-100-python/train": train, "cifar-100-python/test": test}
    members = {name: dump(batch) for name, (batch, _) in names.items()}
    contents = {
        split: (images, batch["fine_labels"])
        for split, (batch, images) in (("train", train), ("test", test))
    }
    return _write_tar(folder / CIFAR100, members), contents


def _assert_same_examples(split, images, labels):
    """The split holds these examples in some order."""
    got = sorted(zip((i.tobytes() for i in split.images), split.labels, strict=True))
    want = sorted(zip((i.tobytes() for i in images), labels, strict=True))
    assert got == want


@pytest.mark.parametrize(
    "dump",
    [
        _python2_pickle,
        lambda batch: pickle.dumps(batch, protocol=2),
        lambda batch: pickle.dumps(batch, protocol=5),
    ],
    ids=["python2", "protocol2", "protocol5"],
)
def test_cifar100_loads_with_the_pixels_and_fine_labels_of_its_archive(tmp_path, dump):
    checksums, contents = _cifar100(tmp_path, dump)
    file = prepare("cifar100", str(tmp_path / "data"), str(tmp_path), checksums)
    assert file == tmp_path / "data/cifar100.npz"
    assert [*file.parent.iterdir()] == [file], "the data lie on disk once"
    data = load("cifar100", str(tmp_path / "data"))
    assert data.num_classes == 100
    _assert_same_examples(data.train, *contents["train"])
    _assert_same_examples(data.test, *contents["test"])


def test_archives_and_a_folder_of_tensorflow_datasets_give_the_same_data(tmp_path):
    checksums, contents = _cifar100(tmp_path)
    prepare("cifar100", str(tmp_path / "ours"), str(tmp_path), checksums)
    ours = load("cifar100", str(tmp_path / "ours"))
    splits = {name: getattr(ours, name) for name in ("train", "test")}
    tfds_writer.write(tmp_path / "theirs/cifar100/3.0.2", splits, num_classes=100)
    theirs = load("cifar100", str(tmp_path / "theirs"))
    assert theirs.fingerprint == ours.fingerprint and theirs.class_names == ours.class_names
    _assert_same_examples(theirs.test, *contents["test"])


def test_what_was_prepared_is_a_file_of_ones_own_images_too(tmp_path):
    checksums, contents = _cifar100(tmp_path)
    file = prepare("cifar100", str(tmp_path), str(tmp_path), checksums)
    images, labels = own_images.read_archive(file)[1]["train"]
    _assert_same_examples(own_images.Split(images, labels), *contents["train"])


def test_cifar10s_five_training_files_are_joined(tmp_path):
    batches = {f"data_batch_{i}": _batch(10, i) for i in range(1, 6)}
    batches["test_batch"] = _batch(NUM_TEST, 6)
    members = {
        f"cifar-10-batches-py/{name}": _python2_pickle(
            {"data": batch["data"], "labels": [k // 10 for k in batch["fine_labels"]]}
        )
        for name, (batch, _) in batches.items()
    }
    checksums = _write_tar(tmp_path / CIFAR10, members)
    prepare("cifar10", str(tmp_path), str(tmp_path), checksums)
    data = load("cifar10", str(tmp_path))
    training = [batches[f"data_batch_{i}"] for i in range(1, 6)]
    images = np.concatenate([images for _, images in training])
    labels = [k // 10 for batch, _ in training for k in batch["fine_labels"]]
    _assert_same_examples(data.train, images, labels)


def test_mnist_loads_with_the_pixels_and_labels_of_its_archives(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = (
        rng.integers(0, 256, (12, 28, 28), np.uint8),
        np.arange(12, dtype=np.uint8) % 10,
    )
    checksums = {}
    for file in preparable()["mnist"].checksums:
        array = images if "images" in file else labels
        header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
        (tmp_path / file).write_bytes(gzip.compress(header + array.tobytes()))
        checksums[file] = hashlib.md5((tmp_path / file).read_bytes()).hexdigest()
    prepare("mnist", str(tmp_path), str(tmp_path), checksums)
    data = load("mnist", str(tmp_path))
    _assert_same_examples(data.train, images, labels)
    _assert_same_examples(data.test, images, labels)


def test_the_order_is_a_function_of_the_archive_alone(tmp_path):
    checksums, _ = _cifar100(tmp_path)
    prints = []
    for where in ("once", "again"):
        prepare("cifar100", str(tmp_path / where), str(tmp_path), checksums)
        data = load("cifar100", str(tmp_path / where))
        prints.append(data.fingerprint)
        assert data.fingerprint == fingerprint(data.train, data.test)
    assert prints[0] == prints[1]


def test_neither_preparing_nor_loading_imports_tensorflow(tmp_path):
    """A stand-in for TensorFlow is there to be found, so that "not installed" proves nothing."""
    checksums, _ = _cifar100(tmp_path)
    (tmp_path / "stand_in/tensorflow").mkdir(parents=True)
    (tmp_path / "stand_in/tensorflow/__init__.py").write_text("")
    script = f"""
import importlib.util, sys
from cat_jax.data import load
from cat_jax.data.prepare import prepare
prepare("cifar100", "data", ".", {checksums!r})
assert len(load("cifar100", "data").test.labels) == {NUM_TEST}
assert importlib.util.find_spec("tensorflow") is not None
assert "tensorflow" not in sys.modules
"""
    path = os.pathsep.join([str(Path(__file__).parents[1]), str(tmp_path / "stand_in")])
    environment = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path, env=environment)


def test_a_wrong_checksum_is_refused_and_nothing_is_written(tmp_path):
    got = _cifar100(tmp_path)[0][CIFAR100]
    published = preparable()["cifar100"].checksums[CIFAR100]
    with pytest.raises(UsageError, match=f"MD5 {got}, expected {published}"):
        prepare("cifar100", str(tmp_path / "data"), str(tmp_path))
    assert not (tmp_path / "data").exists()


def test_a_missing_archive_is_named_with_where_it_is_to_be_had(tmp_path):
    message = f"{tmp_path}/{CIFAR100} is missing; .* from https://www.cs.toronto.edu"
    with pytest.raises(UsageError, match=message):
        prepare("cifar100", str(tmp_path / "data"), str(tmp_path))


class _Trap:
    """Unpickled by the standard library, it would run a shell command."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def test_a_pickle_that_would_run_a_command_is_refused_and_does_not_run_it(tmp_path):
    trap = pickle.dumps({"data": _Trap(f"touch {tmp_path}/sprung")})
    checksums = _write_tar(tmp_path / CIFAR100, {"cifar-100-python/train": trap})
    with pytest.raises(UsageError, match=r"asks for \w+\.system"):
        prepare("cifar100", str(tmp_path / "data"), str(tmp_path), checksums)
    assert not (tmp_path / "sprung").exists() and not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"cifar-100-python/train": b""},
        {"cifar-100-python/train": b"<html>not found</html>"},
        {"cifar-100-python/train": pickle.dumps([1, 2])},
        {"cifar-100-python/train": pickle.dumps({"data": np.zeros((2, 5), np.uint8)})},
    ],
    ids=["no member", "empty", "text", "a list", "wrong shape"],
)
def test_an_archive_that_holds_something_else_is_refused_in_one_line(tmp_path, members):
    checksums = _write_tar(tmp_path / CIFAR100, members)
    with pytest.raises(
        UsageError, match=r"The archives of cifar100 in .* cannot be read"
    ) as caught:
        prepare("cifar100", str(tmp_path / "data"), str(tmp_path), checksums)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("form", ["npz", "tfds"])
def test_what_is_prepared_is_never_written_again(tmp_path, capsys, form):
    checksums, contents = _cifar100(tmp_path)
    if form == "npz":
        path = prepare("cifar100", str(tmp_path / "data"), str(tmp_path), checksums)
    else:
        path = tmp_path / "data/cifar100/3.0.2"
        tfds_writer.write(path, contents, num_classes=100)

    def state():
        every = (path.parent).rglob("*")
        return {file: (file.stat().st_mtime_ns, file.stat().st_ino) for file in every}

    before = state()
    assert prepare("cifar100", str(tmp_path / "data"), str(tmp_path / "nowhere")) == path
    assert main(["--dataset=cifar100", f"--data_dir={tmp_path / 'data'}"]) == 0
    assert f"cifar100 is there already, in {path}" in capsys.readouterr().out
    assert state() == before


def test_an_interrupted_preparation_leaves_nothing_that_looks_prepared(tmp_path, monkeypatch):
    checksums, _ = _cifar100(tmp_path)

    def stop(stream, **arrays):
        stream.write(b"PK")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", stop)
    with pytest.raises(KeyboardInterrupt):
        prepare("cifar100", str(tmp_path / "data"), str(tmp_path), checksums)
    assert [*(tmp_path / "data").iterdir()] == []


@pytest.mark.parametrize("content", [b"", b"PK", b"text", None])
def test_a_damaged_file_is_refused_in_one_line_with_the_remedy(tmp_path, content):
    checksums, _ = _cifar100(tmp_path)
    file = prepare("cifar100", str(tmp_path / "data"), str(tmp_path), checksums)
    file.write_bytes(file.read_bytes()[:-500] if content is None else content)
    with pytest.raises(
        UsageError, match=rf"{file} cannot be read \(.*move it away and run"
    ) as error:
        load("cifar100", str(tmp_path / "data"))
    assert "\n" not in str(error.value)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    checksums, _ = _cifar100(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"data_dir is .*/file/data, where files cannot"):
        prepare("cifar100", str(tmp_path / "file" / "data"), str(tmp_path), checksums)


def test_data_that_were_never_prepared_are_answered_with_the_command(tmp_path):
    with pytest.raises(UsageError) as caught:
        load("cifar100", str(tmp_path))
    message = str(caught.value)
    command = f"python -m cat_jax.data --dataset=cifar100 --data_dir={tmp_path}"
    for part in (
        f"{tmp_path} has neither cifar100.npz",
        "CAT_JAX_DATA",
        command,
        "--source=FOLDER",
        "TensorFlow",
        "`prepare`",
    ):
        assert part in message
    assert "\n" not in message


def test_without_a_folder_the_environment_names_it_or_else_it_lies_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CAT_JAX_DATA", str(tmp_path / "named"))
    with pytest.raises(UsageError, match=f"--data_dir={tmp_path}/named"):
        load("mnist")
    with pytest.raises(UsageError, match=f"--data_dir={tmp_path}/given"):
        load("mnist", "~/given")
    monkeypatch.delenv("CAT_JAX_DATA")
    with pytest.raises(UsageError, match=f"--data_dir={tmp_path}/tensorflow_datasets"):
        load("mnist")


def test_the_newest_version_is_read(tmp_path):
    for version in ("3.0.2", "3.0.10", "2.9.9", "incomplete.3.1.0"):
        (tmp_path / "mnist" / version).mkdir(parents=True)
        info = tmp_path / "mnist" / version / "dataset_info.json"
        info.write_text('{"fileFormat": "array_record"}')
    assert tfds_folder.find(tmp_path / "mnist", "command").name == "3.0.10"


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ('{"name": "mnist"}', "holds tfrecord files, which only TensorFlow reads"),
        ("<html>", "is not what tensorflow_datasets writes; delete"),
        ("[]", "is not what tensorflow_datasets writes; delete"),
    ],
)
def test_a_folder_of_another_format_is_refused_with_the_remedy(tmp_path, info, message):
    (tmp_path / "mnist/3.0.1").mkdir(parents=True)
    (tmp_path / "mnist/3.0.1/dataset_info.json").write_text(info)
    for function in (load, prepare):
        with pytest.raises(UsageError, match=message):
            function("mnist", str(tmp_path))


@pytest.mark.parametrize("damage", ["half", "flipped", "empty", "missing"])
def test_damaged_files_of_tensorflow_datasets_are_refused_with_the_remedy(tmp_path, damage):
    folder = tmp_path / "cifar100/3.0.2"
    tfds_writer.write(folder, _cifar100(tmp_path)[1], num_classes=100)
    (file,) = folder.glob("cifar100-test.array_record*")
    content = bytearray(file.read_bytes())
    if damage == "flipped":
        content[1000] ^= 255
    file.write_bytes({"half": content[: len(content) // 2], "empty": b""}.get(damage, content))
    if damage == "missing":
        file.unlink()
    with pytest.raises(UsageError) as caught:
        load("cifar100", str(tmp_path))
    message = str(caught.value)
    assert f"Cannot read {folder}/cifar100-test.array_record" in message and "\n" not in message
    assert f"delete {folder} and run `python -m cat_jax.data --dataset=cifar100" in message


def test_downloading_without_tensorflow_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["--dataset=mnist", f"--data_dir={tmp_path}"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("error: ")
    for part in ("pip install 'cat_jax[prepare]'", "--source=FOLDER", "t10k-labels-idx1-ubyte.gz"):
        assert part in printed.err


def test_a_download_that_fails_is_reported_in_one_line_with_the_other_way(tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    def builder(name, **options):
        assert options == {"data_dir": str(tmp_path), "file_format": "array_record"}
        raise OSError("no route\nto host")

    monkeypatch.setattr(tfds, "builder", builder)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    with pytest.raises(UsageError, match=r"OSError: no route to host.; give --source=FOLDER"):
        prepare("mnist", str(tmp_path))


@pytest.mark.parametrize("name", ["digits", "imagenet"])
def test_data_sets_without_preparation_are_refused_with_those_that_have_one(name, capsys):
    assert main([f"--dataset={name}"]) == 2
    assert "available: cifar10, cifar100, mnist" in capsys.readouterr().err
