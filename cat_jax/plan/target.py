"""Kinds of devices to plan for, from the files in targets/."""

import pathlib
import tomllib
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

from cat_jax.errors import UsageError

FOLDER = pathlib.Path(__file__).parent / "targets"
CPU = "cpu"


class Target(NamedTuple):
    """A number of devices of one kind; of a CPU only the number is known.

    Attributes:
      name: name of the kind, such as "h100".
      number: number of devices.
      kind: "gpu", "tpu" or "cpu".
      xla: description of the device for XLA, as in the file.
      topology: how XLA arranges the devices, such as "1x8x1" or "2x4".
      memory: bytes of a device.
      bandwidth: bytes a second of its memory.
      link: bytes a second of its links, in one direction.
      flops: operations a second by data type.
    """

    name: str
    number: int
    kind: str
    xla: Mapping[str, Any] = types.MappingProxyType({})
    topology: str = ""
    memory: float = 0.0
    bandwidth: float = 0.0
    link: float = 0.0
    flops: Mapping[str, float] = types.MappingProxyType({})


def names() -> list[str]:
    """The kinds of devices."""
    return [*sorted(path.stem for path in FOLDER.glob("*.toml")), CPU]


def read(text: str) -> Target:
    """The target of "h100:8"; "h100" is one device.

    Raises:
      UsageError: for an unknown kind, and for a number that the kind does not come in.
    """
    name, colon, digits = text.partition(":")
    number = int(digits) if digits.isdecimal() else 1 - bool(colon)
    if name not in names() or number < 1:
        raise UsageError(
            f"--target is {text!r}; expected KIND:NUMBER, such as h100:8, with one of these "
            f"kinds: {', '.join(names())}."
        )
    if name == CPU:
        return Target(name, number, CPU)
    values = tomllib.loads((FOLDER / f"{name}.toml").read_text())
    shapes = values.get("topologies", {str(number): f"1x{number}x1"})
    if str(number) not in shapes:
        raise UsageError(f"--target is {text}; {name} comes in these numbers: {', '.join(shapes)}.")
    return Target(
        *(name, number, values["kind"], values["xla"], shapes[str(number)]),
        memory=1e9 * values["memory_gigabytes"],
        bandwidth=1e9 * values["memory_gigabytes_per_second"],
        link=1e9 * values["link_gigabytes_per_second"],
        flops={dtype: 1e12 * rate for dtype, rate in values["teraflops"].items()},
    )
