"""Whether a file of weights fits a network: names, shapes, finite numbers, normalisation."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from cat_jax.errors import UsageError
from cat_jax.networks.record import MaskNet, record_of
from cat_jax.weights import pytorch_names, recognition
from cat_jax.weights.recognition import Constants, Entries, describe, infer

TOLERANCE = 1e-5  # Of mean and std, relative: more than float32 rounds.


def check_entries(
    network: nn.Module, entries: Entries, image_shape: tuple[int, ...], *, is_mask: bool
) -> None:
    """Raises UsageError naming the first entry that is missing, unknown, misshapen or not finite.

    The error also says which network the entries look like.
    """
    want = _shapes(network, image_shape, is_mask=is_mask)
    name, remedy = describe(network), _remedy(network, entries)
    if missing := [entry for entry in want if entry not in entries]:
        raise UsageError(
            f"{len(missing)} of the {len(want)} entries of {name} are missing, first "
            f"{missing[0]!r}; {remedy}"
        )
    if unknown := [entry for entry in entries if entry not in want]:
        raise UsageError(
            f"{len(unknown)} entries are none of {name}'s, first {unknown[0]!r}; {remedy}"
        )
    for entry, shape in want.items():
        if entries[entry].shape != shape:
            raise UsageError(
                f"entry {entry!r} is {list(entries[entry].shape)}, expected {list(shape)} of "
                f"{name} for images of {list(image_shape)}; {remedy}"
            )
        if not np.all(np.isfinite(np.asarray(entries[entry], np.float64))):
            raise UsageError(f"entry {entry!r} is not finite; get the file again.")


def check_constants(network: nn.Module, constants: Constants) -> None:
    """Raises UsageError if the file normalises images otherwise than the network."""
    here = {name: tuple(getattr(network, name, ())) for name in ("mean", "std")}
    for name, value in here.items():
        there = constants.get(name, ())
        if len(there) != len(value) or not np.allclose(there, value, TOLERANCE, 0):
            raise UsageError(
                f"it normalises images with {name} {list(there)}, expected {list(value)}; give "
                "the network that of the file (config.classifier.mean, std and normalize)."
            )


def unknown_normalisation(network: nn.Module, *, is_from_config: bool) -> str:
    """Asks for the normalisation that a file does not state."""
    text = f"it does not say how {describe(network)} normalises images; "
    if not is_from_config:
        return text + (
            "pass the network with its mean and std, or without if it takes images in [0, 1] as "
            "they are."
        )
    return text + (
        "add --config.classifier.normalize=False if it takes images in [0, 1] as they are, "
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
    """What to do about a file that does not fit; it names the network that the file does fit."""
    with contextlib.suppress(UsageError):
        other = infer(entries, {})
        shapes = _shapes(other, recognition.image_shape(entries), is_mask=False)
        fits = shapes == {name: value.shape for name, value in entries.items()}
        if fits and describe(other) != describe(network):
            return f"the file is of {describe(other)}: choose that network, and its data set."
    return "the file is incomplete, or of other images, or of a network that is not among ours."
