"""Recognises the network of a file of weights by its names, its shapes and its file name."""

import inspect
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flax import linen as nn

from cat_jax.data import Source
from cat_jax.errors import UsageError
from cat_jax.networks.record import MaskNet, Network, StateDict, every, record_of
from cat_jax.runtime.registry import find
from cat_jax.weights import zoo

Entries = Mapping[str, np.ndarray]
Constants = Mapping[str, tuple[float, ...]]  # {"mean": ..., "std": ...}, or {}.
# File names of the authors, whose CIFAR networks normalise images with constants in no file:
# network, beta, beta1 ("01" is 0.1), 255 epsilon, and loss of the training attack.
AUTHORS_NAME = re.compile(r"(RN|WRN)_b_(\d+)_b1_(\d+)_e(\d+)_(cw|cent)")
AUTHORS_NETWORKS = {"RN": "PreActResNet18", "WRN": "WideResNet"}
AUTHORS_LOSSES = {"cw": "margin", "cent": "cross_entropy"}
SIZES = ("num_classes", "depth", "widen_factor")  # Descriptions show them even as defaults.
AUTHORS_DATA = {10: "cifar10", 100: "cifar100"}  # By the number of classes.


def infer(
    entries: Entries, constants: Constants, stated: Mapping[str, Any] | None = None
) -> nn.Module:
    """The network of a state dict, by its names and shapes.

    Arguments that names and shapes do not show have the value of public checkpoints with these
    names: the activation is ReLU, or SiLU for DeepMind's.

    Args:
      entries: state dict without prefixes.
      constants: normalisation of the network; {} for none.
      stated: arguments of the network that are known otherwise.

    Raises:
      UsageError: if no network that is published in PyTorch has these names, or if public
        checkpoints with these names have several values of an argument and none is stated.
    """
    record, form = _recognise(entries)
    if constants and "mean" not in record.takes:
        raise UsageError(f"it normalises images, which {record.name} does not; expected none.")
    for layer, name in (("first", form.first), ("last", form.last)):
        if name not in entries:
            raise UsageError(
                f"it resembles {record.name}, but lacks {name!r}, the weight of the {layer} layer; "
                "it is incomplete, or holds another network."
            )
    shapes = {name: value.shape for name, value in entries.items()}
    inputs, outputs = form.inputs(shapes), form.outputs(shapes)
    if isinstance(record, MaskNet):
        arguments: dict[str, Any] = {"sees": "pair" if inputs == 2 * outputs else "sum"}
    else:
        arguments = {"num_classes": outputs}
    arguments |= form.arguments(shapes) | dict(stated or {})
    for name, values in form.unseen.items():
        if name not in arguments and len(values) > 1:
            raise UsageError(unstated(record.name, name, values))
        arguments.setdefault(name, values[0])
    return record.build(**(arguments | dict(constants)))


def unstated(
    network: str, name: str, values: Sequence[Any], *, is_from_config: bool = False
) -> str:
    """The error for a file that does not state an argument that changes its outputs."""
    texts = " or ".join(f"{name}={value!r}" for value in values)
    field = " or ".join(f"--config.classifier.{name}={value}" for value in values)
    return f"it does not state whether {network} has {texts}, which changes its logits; " + (
        f"add {field}." if is_from_config else "pass the network with the right one."
    )


def image_shape(entries: Entries) -> tuple[int, ...]:
    """(H, W, C) of images that the entries fit; 32x32 for networks without a fixed size."""
    try:
        record, form = _recognise(entries)
    except UsageError:
        return 32, 32, 3
    shapes = {name: value.shape for name, value in entries.items()}
    is_mask, side = isinstance(record, MaskNet), form.side(shapes)
    return side, side, form.outputs(shapes) if is_mask else form.inputs(shapes)


def describe(network: nn.Module) -> str:
    """ "WideResNet(num_classes=10, depth=34, widen_factor=10)"."""
    record = record_of(network)
    if record is None:
        return type(network).__name__
    arguments, parameters = record.arguments_of(network), inspect.signature(record.make).parameters
    shown = [
        f"{name}={value}"
        for name, value in arguments.items()
        if name not in ("mean", "std") and (name in SIZES or value != parameters[name].default)
    ]
    return f"{record.name}({', '.join(shown)})"


def describe_short(network: nn.Module) -> str:
    """ "ResNet18", or "WideResNet-34-10" for a network with several sizes."""
    record = record_of(network)
    if record is None:
        return type(network).__name__
    values = [getattr(network, field) for field in record.fields if field not in record.bound]
    sizes = [str(value) for value in values if type(value) is int]
    return "-".join([record.name, *sizes])


def fields_of_file_name(file_name: str) -> dict[str, Any]:
    """Config fields that a file name of the authors states, by their paths; {} for other names.

    RN_b_5_b1_01_e8_cw.pth is PreAct ResNet-18, trained by CAT_cw with beta 5 and beta1 0.1.
    """
    match = AUTHORS_NAME.match(file_name)
    if match is None:
        return {}
    network, beta, beta1, epsilon, loss = match.groups()
    return {
        "classifier.name": AUTHORS_NETWORKS[network],
        "method.name": "cat",
        "method.beta": _number(beta),
        "method.beta1": _number(beta1),
        "attack.epsilon": f"{epsilon}/255",
        "attack.loss": AUTHORS_LOSSES[loss],
    }


def unseen_arguments(network: nn.Module) -> Mapping[str, Sequence[Any]]:
    """Arguments that files of the network do not show, with the values of public checkpoints."""
    record = record_of(network)
    return record.state_dict.unseen if record and record.state_dict else {}


def arguments_of_file(path: pathlib.Path, entries: Entries) -> dict[str, Any]:
    """Arguments of the network that the name of a file states: the authors' or RobustBench's."""
    if AUTHORS_NAME.match(path.name):
        return {"shortcut": "activated"}
    try:
        record, form = _recognise(entries)
    except UsageError:
        return {}
    shapes = {name: value.shape for name, value in entries.items()}
    if isinstance(record, MaskNet) or form.outputs(shapes) != zoo.NUM_CLASSES:
        return {}
    sizes = [str(value) for value in form.arguments(shapes).values() if type(value) is int]
    return zoo.arguments(path, "-".join([record.name, *sizes]))


def authors_constants(entries: Entries, network: str) -> Constants | None:
    """Mean and std by which the authors' CIFAR networks normalise images; None for others.

    Args:
      entries: state dict without prefixes.
      network: name of the authors' network that the name of the file states.
    """
    record, form = _recognise(entries)
    num_classes = form.outputs({name: value.shape for name, value in entries.items()})
    if record.name != network or num_classes not in AUTHORS_DATA:
        return None
    source = find(Source, "the data set", AUTHORS_DATA[num_classes])
    return {"mean": source.mean, "std": source.std}


def _number(digits: str) -> float:
    """ "005" is 0.05, "5" is 5."""
    return float(f"0.{digits[1:]}") if digits.startswith("0") and digits != "0" else float(digits)


def _recognise(entries: Entries) -> tuple[Network, StateDict]:
    """The record whose signature is among the entries, and the names of its weights."""
    published = [(record, record.state_dict) for record in every() if record.state_dict]
    fitting = [
        (r, form) for r, form in published if all(name in entries for name in form.signature)
    ]
    if not fitting:
        raise UsageError(
            f"its entries ({', '.join([*entries][:3])}, ...) belong to no known network; expected "
            f"one of {', '.join(record.name for record, _ in published)}, with published names."
        )
    return max(fitting, key=lambda pair: len(pair[1].signature))
