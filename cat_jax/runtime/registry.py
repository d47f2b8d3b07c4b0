"""Names that a config may use, and their records, from cat_jax or from a user's module.

A record holds all that cat_jax needs to know of one network, data set, method or attack. The file
that defines the thing registers its record, in the package as in a plugin:

    from cat_jax import networks, register

    register(networks.Classifier("MyNet", MyNet))
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from cat_jax.errors import UsageError

PACKAGE = pathlib.Path(__file__).parents[1]


@dataclasses.dataclass(frozen=True)
class Record:
    """A named record. Networks, data sets, methods and attacks have their own subclasses."""

    name: str


@dataclasses.dataclass(frozen=True)
class EvaluationAttack(Record):
    """An attack that evaluations may run, beside those of the suites.

    Attributes:
      name: word of config.evaluation that selects it, and its name in results.
      attack: (logits_fn, images, labels, keys, **arguments) -> images, keys [B], one for each
        image; or images and the forward passes on each, int32 [B]. It needs an argument epsilon.
      fields: fields of config.test that it takes as keyword arguments of the same names.
      after: name of the attack before it in a cascade; "" to attack every image.
      queries: forward passes on each image, where the attack does not count them.
    """

    attack: Callable[..., Any]
    fields: tuple[str, ...] = ("epsilon",)
    after: str = ""
    queries: int = 1


R = TypeVar("R", bound=Record)
_records: dict[type[Record], dict[str, Any]] = {}
# The module that registered a name, and its file or, in a notebook, the module again.
_owners: dict[tuple[type[Record], str], tuple[str, str]] = {}


def register(*records: Record) -> None:
    """Registers records under their names, for config fields, files of weights and results.

    A module that runs again, such as a cell of a notebook, replaces its own records.

    Args:
      records: records of networks (`networks.Classifier`, `networks.MaskNet`), data sets
        (`data.Source`), methods (`methods.NamedMethod`) or attacks (`attacks.EvaluationAttack`).

    Raises:
      UsageError: for another type, or a name that another module has registered.
    """
    caller = sys._getframe(1).f_globals
    module = caller.get("__name__", "")
    owner = caller.get("__file__", module)  # A script and the same file imported are one.
    for record in records:
        if not isinstance(record, Record) or type(record) is Record:
            kinds = ", ".join(kind.__name__ for kind in _records)
            raise UsageError(f"register got {record!r}; expected records: objects of {kinds}.")
        _, first = _owners.setdefault((type(record), record.name), (module, owner))
        if first != owner:
            raise UsageError(
                f"{owner} registers the {type(record).__name__} {record.name!r}, a name that "
                f"{first} has registered; choose another name."
            )
        _records.setdefault(type(record), {})[record.name] = record


@contextlib.contextmanager
def temporary_records() -> Iterator[None]:
    """Forgets, at the end of the block, the records that were registered in it."""
    records = {kind: dict(names) for kind, names in _records.items()}
    owners = dict(_owners)
    try:
        yield
    finally:
        _records.clear()
        _records.update(records)
        _owners.clear()
        _owners.update(owners)


def records_of(kind: type[R]) -> dict[str, R]:
    """The records of a kind, by name, in the order in which they were registered."""
    return dict(_records.get(kind, {}))


def find(kind: type[R], field: str, name: str) -> R:
    """The record of a name.

    Args:
      kind: class of the record.
      field: config field with this name as its value, for the error.
      name: name of the record.

    Raises:
      UsageError: if there is no such record; the error lists the names that exist.
    """
    records = records_of(kind)
    if name not in records:
        raise UsageError(
            f"{field} is {name!r}; available: {', '.join(records)}. Name the module that registers "
            "another one: --plugin=MODULE."
        )
    return records[name]


def plugins_of(*records: Record) -> dict[str, str]:
    """The modules outside cat_jax that registered these records.

    Returns:
      module -> first twelve hexadecimal digits of the SHA-256 of its file; "" without a file.
    """
    owners = {_owners[type(record), record.name] for record in records}
    return {
        module: _digest(file)
        for module, file in sorted(owners)
        if not pathlib.Path(file).is_relative_to(PACKAGE)
    }


@functools.cache  # Because the imported code stays when its file changes.
def _digest(file: str) -> str:
    path = pathlib.Path(file)
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else ""


def import_plugins(names: Iterable[str]) -> None:
    """Imports the modules that register what a config names, unless they are imported already.

    It does not catch an error in the code of a module.

    Raises:
      UsageError: if there is no such module.
    """
    for name in names:
        find_plugin(name)
        importlib.import_module(name)


def find_plugin(name: str) -> str:
    """The file of a plugin.

    Raises:
      UsageError: if there is no such module.
    """
    given = f"--plugin={name} (config.plugins)"
    if not isinstance(name, str) or not name:  # An override of config.plugins may be anything.
        raise UsageError(f"{given} is not the name of a module, such as my_module.")
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # For the package around it.
        spec = None
    except (ImportError, ValueError) as error:
        raise UsageError(f"{given} is not the name of a module: {error}.") from error
    if spec is None:
        raise UsageError(
            f"{given}: there is no module {name} in this folder or on Python's path; run in the "
            "folder that has it, or add that folder to PYTHONPATH."
        )
    return spec.origin or ""
