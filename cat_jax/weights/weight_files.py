"""Files of weights, whole or absent, in several formats.

A part is one network, "classifier" or "mask_net". A `.pth` and an orbax folder hold both; of the
other formats there is a file for each.
"""

import contextlib
import hashlib
import pathlib
from collections.abc import Callable, Iterator

from cat_jax.errors import UsageError, check_choice
from cat_jax.weights import formats
from cat_jax.weights.formats import CLASSIFIER, Part, Parts

READERS: dict[str, Callable[[pathlib.Path], dict[str, Part]]] = {
    ".safetensors": formats.read_safetensors,
    ".npz": formats.read_npz,
    ".pth": formats.read_torch,
    ".pt": formats.read_torch,
    ".pth.tar": formats.read_torch,
}
# By --format: the suffix, and what writes the parts into one file, or each into its own.
TOGETHER: dict[str, tuple[str, Callable[[pathlib.Path, Parts], None]]] = {
    "torch": (".pth", formats.write_torch),
    "orbax": (".orbax", formats.write_orbax),
}
APART: dict[str, tuple[str, Callable[[pathlib.Path, Part], None]]] = {
    "safetensors": (".safetensors", formats.write_safetensors),
    "saved-npz": (".npz", formats.write_npz),
}
SUFFIXES = {name: suffix for name, (suffix, _) in (TOGETHER | APART).items()}


def read(file: pathlib.Path) -> dict[str, Part]:
    """The parts of a file, or of a folder that was exported as orbax.

    Raises:
      UsageError: if it is not there, of no format that is known, damaged, or needs PyTorch.
    """
    if not file.exists():
        raise UsageError(f"There is no {file}; name a file of weights.")
    if file.is_dir():
        if not (file / formats.ABOUT_FILE).exists():
            raise UsageError(
                f"{file} is a folder; expected a file of weights, or a folder made by "
                "python -m cat_jax.weights.export --format=orbax."
            )
        with _says_what_is_wrong(file):
            return formats.read_orbax(file)
    with open(file, "rb") as stream:
        if stream.read(64).lstrip().startswith(b"<"):
            raise UsageError(f"{file} is a web page; expected weights: download it again.")
    for suffix, reader in READERS.items():
        if file.name.endswith(suffix):
            with _says_what_is_wrong(file):
                return reader(file)
    raise UsageError(f"{file} ends in {file.suffix!r}; expected one of {', '.join(READERS)}.")


@contextlib.contextmanager
def _says_what_is_wrong(file: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except UsageError:
        raise
    except Exception as error:  # There is no end to what a damaged file can raise.
        raise UsageError(
            f"{file} cannot be read ({type(error).__name__}); expected a whole file of arrays and "
            "plain values, no Python objects: get it again, or save the state dict by itself."
        ) from error


def write(stem: pathlib.Path, form: str, parts: Parts) -> list[pathlib.Path]:
    """Writes the parts; what was exported before under these names is replaced.

    Args:
      stem: the path without its suffix.
      form: a key of `SUFFIXES`.
      parts: by their names.

    Returns:
      the files, or the folder: first that of the classifier.
    """
    check_choice("format", form, SUFFIXES)
    stem.parent.mkdir(parents=True, exist_ok=True)
    if form in TOGETHER:
        suffix, write_parts = TOGETHER[form]
        path = stem.with_name(stem.name + suffix)
        write_parts(path, parts)
        return [path]
    suffix, write_part = APART[form]
    tails = {name: "" if name == CLASSIFIER else f"_{name}" for name in parts}
    paths = {name: stem.with_name(stem.name + tail + suffix) for name, tail in tails.items()}
    for name, path in paths.items():
        write_part(path, parts[name])
    return [*paths.values()]


def digest(path: pathlib.Path) -> str:
    """SHA-256 of a file; of a folder, that of the lines that sha256sum prints of its files."""
    if path.is_dir():
        names = sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file())
        lines = "".join(f"{digest(path / name)}  {name}\n" for name in names)
        return hashlib.sha256(lines.encode()).hexdigest()
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
