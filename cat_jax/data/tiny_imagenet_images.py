"""`tiny_imagenet`: 110,000 photographs of 64x64 pixels in 200 classes (Stanford's CS231n)."""

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cat_jax.data.archives import Archives
from cat_jax.data.source import Source
from cat_jax.data.splits import Split
from cat_jax.runtime.registry import register

FILE, ROOT = "tiny-imagenet-200.zip", "tiny-imagenet-200"
SIDE = 64


def read(source: Path) -> dict[str, Split]:
    """The splits "train" and "test" of the archive in a folder.

    Classes are numbered in the order of their WordNet names. The published validation split is
    the test split, because the labels of the published test split are secret.
    """
    with zipfile.ZipFile(source / FILE) as archive:
        classes = sorted(archive.read(f"{ROOT}/wnids.txt").decode().split())
        number = {name: i for i, name in enumerate(classes)}
        folder = f"{ROOT}/train/"
        train = sorted(
            name
            for name in archive.namelist()
            if name.startswith(folder) and name.endswith(".JPEG")
        )
        lines = archive.read(f"{ROOT}/val/val_annotations.txt").decode().splitlines()
        labels = dict(line.split("\t")[:2] for line in lines if line)
        return {
            "train": _split(archive, train, [number[name.split("/")[2]] for name in train]),
            "test": _split(
                archive,
                [f"{ROOT}/val/images/{name}" for name in sorted(labels)],
                [number[labels[name]] for name in sorted(labels)],
            ),
        }


def _split(archive: zipfile.ZipFile, names: Sequence[str], labels: Sequence[int]) -> Split:
    from PIL import Image

    images = np.empty((len(names), SIDE, SIDE, 3), np.uint8)
    for i, name in enumerate(names):
        with Image.open(io.BytesIO(archive.read(name)), formats=("JPEG",)) as image:
            images[i] = np.asarray(image.convert("RGB"))  # Some of the files are grey.
    return Split(images, np.asarray(labels, np.int32))


TINY_IMAGENET = Archives(
    "tiny_imagenet",
    image_shape=(SIDE, SIDE, 3),
    num_classes=200,
    homepage="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    checksums={FILE: "90528d7ca1a48142e341f4ef8d21d0de"},
    read=read,
)
register(
    Source(
        "tiny_imagenet",
        TINY_IMAGENET.load,
        TINY_IMAGENET,
        num_train=100_000,
        num_test=10_000,
        mean=(0.4802, 0.4481, 0.3975),
        std=(0.2770, 0.2691, 0.2821),
    )
)
