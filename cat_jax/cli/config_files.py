"""Finds config files by name, and explains why one cannot be loaded."""

import pathlib
import re
import traceback
from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from cat_jax import configs
from cat_jax.errors import UsageError
from cat_jax.experiment import settings
from cat_jax.storage import paths

INSTALLED = pathlib.Path(configs.__file__).parent
# The message of a ConfigDict about an unknown field, before or after it lists all fields.
CLOSE = re.compile(r'Did you mean "(?P<close>.*)" instead of "(?P<name>.*)"\?')
UNKNOWN = re.compile(r'Key "(?P<name>.*?)" does not exist')
WRAPPED = "Error whilst parsing config file"  # A traceback follows it in the flags library.


def path_of(value: str) -> str:
    """Returns the path for "cat_jax:NAME:VARIANT", with the variant, or for a file with ~.

    Raises:
      UsageError: if there is no such file.
    """
    if value.startswith("cat_jax:"):
        name, colon, variant = value.removeprefix("cat_jax:").partition(":")
        value = f"{INSTALLED / name}.py{colon}{variant}"
    file, colon, variant = value.partition(":")
    path = paths.local_path(file, "--config")
    if not path.is_file():
        names = sorted(f.stem for f in INSTALLED.glob("[!_]*.py") if f.stem != "default")
        raise UsageError(
            f"There is no config file {path}; name one, or an installed one as "
            f"--config=cat_jax:NAME with NAME one of {', '.join(names)}."
        )
    return f"{path}{colon}{variant}"


def describe(error: Exception, file: str) -> tuple[str, str]:
    """Explains why the command line could not be read.

    Args:
      error: the error, possibly inside errors of the flags library.
      file: path of the config file that was loaded, or "".

    Returns:
      The frames of the traceback from the config file on, or "" if its code did not fail; and one
      line that states the error.
    """
    causes = [cause for cause in _causes(error) if WRAPPED not in str(cause)]
    for cause in causes:
        if isinstance(cause, UsageError):
            return "", str(cause)
    for cause in causes:
        frames = traceback.extract_tb(cause.__traceback__)
        own = [i for i, frame in enumerate(frames) if _same(frame.filename, file)]
        if own:
            line = f"{file}, line {frames[own[-1]].lineno}: {_type_and_text(cause)}"
            return "".join(traceback.format_list(frames[own[0] :])), line
        if isinstance(cause, SyntaxError) and _same(cause.filename or "", file):
            code = (cause.text or "").strip()
            return "", f"{file}, line {cause.lineno}: SyntaxError: {cause.msg}: {code}"
    return "", str(causes[-1] if WRAPPED in str(error) else error)


def check_loaded(config: Any, file: str) -> None:
    """Raises UsageError if `get_config` of a config file did not return a config."""
    getattr(config, "seed", None)  # Raises the OSError of the file that the flags library stored.
    if not isinstance(config, ConfigDict):
        raise UsageError(
            f"get_config in {file} returned {type(config).__name__}; expected a ConfigDict: begin "
            "with cat_jax.configs.default.get_config(), change its fields, and return it."
        )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _same(left: str, right: str) -> bool:
    return bool(left and right) and pathlib.Path(left).resolve() == pathlib.Path(right).resolve()


def _type_and_text(error: BaseException) -> str:
    text = str(error)
    if close := CLOSE.search(text):
        text = f"there is no field {close['name']}; did you mean {close['close']}?"
    elif unknown := UNKNOWN.search(text):
        text = f"there is no field {unknown['name']}; all fields are in {settings.SCHEMA}."
    return f"{type(error).__name__}: {text}"
