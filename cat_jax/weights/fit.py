"""Whether a file of weights fits a network: names, shapes, finite numbers, normalisation."""

import contextlib
from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from cat_jax.errors import UsageError
from cat_jax.networks.record import MaskNet, record_of
from cat_jax.weights import pytorch_names, recognition
from cat_jax.weights.recognition import Constants, Entries, describe, infer

TOLERANCE = 1e-5  # Relative, for mean and std: above the rounding of float32.


def check_entries(
    network: nn.Module, entries: Entries, image_shape: tuple[int, ...], *, is_mask: bool
) -> None:
    """Raises UsageError naming the first entry that is missing, unknown, misshapen or not finite.

    The error also says which network the entries look like.
    """
    expected = _shapes(network, image_shape, is_mask=is_mask)
    name, remedy = describe(network), _remedy(network, entries)
    if missing := [entry for entry in expected if entry not in entries]:
        raise UsageError(
            f"{len(missing)} of the {len(expected)} entries of {name} are missing, first "
            f"{missing[0]!r}; {remedy}"
        )
    if unknown := [entry for entry in entries if entry not in expected]:
        raise UsageError(
            f"{len(unknown)} entries do not belong to {name}, first {unknown[0]!r}; {remedy}"
        )
    for entry, shape in expected.items():
        if entries[entry].shape != shape:
            raise UsageError(
                f"entry {entry!r} is {list(entries[entry].shape)}, expected {list(shape)} of "
                f"{name} for images of {list(image_shape)}; {remedy}"
            )
        if not np.all(np.isfinite(np.asarray(entries[entry], np.float64))):
            raise UsageError(f"entry {entry!r} is not finite; download the file again.")


def check_constants(network: nn.Module, constants: Constants) -> None:
    """Raises UsageError if the network of the file normalises images differently."""
    expected = {name: tuple(getattr(network, name, ())) for name in ("mean", "std")}
    for name, value in expected.items():
        stated = constants.get(name, ())
        if len(stated) != len(value) or not np.allclose(stated, value, TOLERANCE, 0):
            raise UsageError(
                f"it normalises images with {name} {list(stated)}, expected {list(value)}; set "
                "those of the file (config.classifier.mean, std and normalize)."
            )


def check_unseen(
    network: nn.Module, stated: Mapping[str, Any], fields: Collection[str] | None
) -> None:
    """Raises UsageError if arguments that no entry shows may differ from those of the file.

    Args:
      network: network that the file has to fit.
      stated: arguments that the file or its name states.
      fields: arguments that the user states; None: all.
    """
    for name, values in recognition.unseen_arguments(network).items():
        value = getattr(network, name)
        if name in stated and stated[name] != value:
            raise UsageError(
                f"it holds a network with {name}={stated[name]!r}, expected {value!r}; set that of "
                f"the file (config.classifier.{name})."
            )
        if name not in stated and fields is not None and name not in fields:
            if tuple(values) != (value,):
                raise UsageError(
                    recognition.unstated(describe(network), name, values, is_from_config=True)
                )


def unknown_normalisation(network: nn.Module, *, is_from_config: bool) -> str:
    """The error for a file that does not state its normalisation."""
    text = f"it does not state how {describe(network)} normalises images; "
    if not is_from_config:
        return text + (
            "pass the network with its mean and std, or without them if it takes images in [0, 1] "
            "unchanged."
        )
    return text + (
        "add --config.classifier.normalize=False if it takes images in [0, 1] unchanged, "
        "--config.classifier.normalize=True if it normalises with the mean and std of the config, "
        "or --config.classifier.mean and std with its own."
    )


def _shapes(
    network: nn.Module, image_shape: tuple[int, ...], *, is_mask: bool
) -> dict[str, tuple[int, ...]]:
    """The shapes of a network's entries, by name."""
    images = jax.ShapeDtypeStruct((1, *image_shape), jnp.float32)
    is_mask = is_mask or isinstance(record_of(network), MaskNet)
    inputs = (images, images) if is_mask else (images,)
    variables = jax.eval_shape(network.init, jax.random.key(0), *inputs)
    blank = jax.tree.map(lambda leaf: np.broadcast_to(np.float32(0), leaf.shape), variables)
    state_dict = pytorch_names.to_state_dict(network, blank)
    return {name: value.shape for name, value in state_dict.items()}


def _remedy(network: nn.Module, entries: Entries) -> str:
    """The remedy for a file that does not fit; it names the network that the file fits, if any."""
    unseen = {name: getattr(network, name) for name in recognition.unseen_arguments(network)}
    with contextlib.suppress(UsageError):
        recognised = infer(entries, {}, unseen)
        shapes = _shapes(recognised, recognition.image_shape(entries), is_mask=False)
        fits = shapes == {name: value.shape for name, value in entries.items()}
        if fits and describe(recognised) != describe(network):
            return f"the file holds {describe(recognised)}: choose that network and its data set."
    return "the file is incomplete, or for other images, or of an unknown network."
