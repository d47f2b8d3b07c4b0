"""Networks with weights from a file: others' PyTorch checkpoints, and what `export` writes.

    from cat_jax import weights

    loaded = weights.load("model.safetensors")
    logits = loaded.network.apply(loaded.variables, images)  # or loaded.logits_fn(images)

The network is known by the names and shapes in the file. Where neither the file nor its name, as
of the authors' RN_b_5_b1_01_e8_cw.pth, says how images are normalised, pass the network:

    network = networks.PreActResNet18(mean=(0.4914, 0.4822, 0.4465), std=(0.2471, 0.2435, 0.2616))
    loaded = weights.load("model_best.pth", network)
"""

import contextlib
import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.tree_util import Partial

from cat_jax import networks
from cat_jax.errors import UsageError
from cat_jax.types import LogitsFn, PyTree
from cat_jax.weights import published_names, pytorch_names, weight_files
from cat_jax.weights.weight_files import ANY, CLASSIFIER, MASK_NET, Part

__all__ = ["CLASSIFIER", "MASK_NET", "Loaded", "describe", "infer", "load"]
TOLERANCE = 1e-5  # Of mean and std, relative: more than float32 rounds.
# The last layer, which has a row for each class; of mask networks, the first one and the last.
LAST = {
    "SmallCNN": "11.weight",
    "PreActResNet18": "linear.weight",
    "ResNet18": "linear.weight",
    "WideResNet": "fc.weight",
}
MASKS = {"SmallMask": ("0.weight", "7.weight"), "ResNetMask": ("conv1.weight", "conv2.weight")}
# A name that tells a network from those after it.
TELLING = {
    "11.weight": "SmallCNN",
    "7.weight": "SmallMask",
    "block1.layer.0.conv1.weight": "WideResNet",
    "conv2.weight": "ResNetMask",
    "bn1.weight": "ResNet18",
    "layer1.0.conv1.weight": "PreActResNet18",
}
Entries = Mapping[str, np.ndarray]
Constants = Mapping[str, tuple[float, ...]]  # {"mean": ..., "std": ...}, or {}.


class Loaded(NamedTuple):
    """A network and its weights.

    Attributes:
      network: a classifier or a mask network.
      variables: {"params": ..., "batch_stats": ...}, what its `apply` takes.
      file: where they came from.
      digest: SHA-256 of the file.
      fields: of the config that they were trained with, by their paths, where the file says so.
    """

    network: nn.Module
    variables: PyTree
    file: pathlib.Path
    digest: str
    fields: dict[str, Any]

    @property
    def logits_fn(self) -> LogitsFn:
        """Images [B, H, W, C] in [0, 1] -> logits [B, K], for the attacks."""
        return Partial(self.network.apply, self.variables)


def load(
    file: str | pathlib.Path,
    network: nn.Module | None = None,
    *,
    part: str = CLASSIFIER,
    image_shape: tuple[int, int, int] | None = None,
) -> Loaded:
    """The network in a file.

    Args:
      file: .safetensors; with PyTorch, .pth or .pt.
      network: that the file has to fit; by default the one that its entries are of.
      part: "classifier" or "mask_net", of a file that holds both.
      image_shape: (H, W, C) that the network has to take; by default what it was trained on.

    Raises:
      UsageError: if the file cannot be read, or its names, shapes or normalisation are not those
        of the network; one line that begins with the file.
    """
    path = pathlib.Path(file)
    parts = weight_files.read(path)
    with _naming(path):
        if part not in parts and ANY not in parts:
            raise UsageError(f"it holds {', '.join(parts)}; expected {part}.")
        chosen = parts.get(part) or parts[ANY]
        by_name = published_names.fields(path.name)
        entries, said = _open(chosen, by_name.get("classifier.name", ""))
        given, network = network, network or infer(entries, said or {})
        _check(network, entries, image_shape or _image_shape(entries))
        if said is not None:
            _check_constants(network, said)
        elif given is None and hasattr(network, "mean"):
            raise UsageError(
                f"it does not say how {describe(network)} normalises images; pass the network "
                "with its mean and std, or without if it takes images in [0, 1] as they are."
            )
        made = pytorch_names.from_state_dict(type(network).__name__, entries)
    fields = by_name | chosen.about.get("config", {})
    digest = weight_files.digest(path)
    return Loaded(network, jax.tree.map(_array, made), path, digest, fields)


def _open(part: Part, authors: str) -> tuple[Entries, Constants | None]:
    """The entries without prefixes, and mean and std: {} for none, None if nothing tells.

    Args:
      part: of a file.
      authors: the authors' network that the file has to be by its name, or "".
    """
    entries, said = pytorch_names.unwrap(part.entries)
    if not said and "mean" in part.about:
        said = {name: tuple(part.about[name]) for name in ("mean", "std")}
    if said:
        return entries, said if any(said["mean"]) or any(s != 1 for s in said["std"]) else {}
    if authors and type(of_file := infer(entries, {})).__name__ == authors:
        return entries, published_names.CONSTANTS.get(of_file.num_classes)  # type: ignore[attr-defined]
    return entries, None


def infer(entries: Entries, constants: Constants) -> nn.Module:
    """The network that a state dict is of, by its names and shapes.

    Args:
      entries: without prefixes.
      constants: its normalisation; {} for none.

    Raises:
      UsageError: if it is of none of ours.
    """
    name = next((of for entry, of in TELLING.items() if entry in entries), None)
    if name is None:
        raise UsageError(
            f"its entries ({', '.join([*entries][:3])}, ...) are of no network here; expected one "
            f"of {', '.join(TELLING.values())}, by their published names."
        )
    kwargs: dict[str, Any] = dict(constants)
    if name in LAST:
        kwargs["num_classes"] = _size(entries, LAST[name], 0)
    if name == "WideResNet":
        blocks = {entry.split(".")[2] for entry in entries if entry.startswith("block1.layer.")}
        kwargs["depth"] = 6 * len(blocks) + 4
        kwargs["widen_factor"] = max(_size(entries, "block1.layer.0.conv1.weight", 0) // 16, 1)
    if name in MASKS:
        first, last = MASKS[name]
        pair = _size(entries, first, 1) == 2 * _size(entries, last, 0)
        kwargs["sees"] = "pair" if pair else "sum"
    try:
        network: nn.Module = getattr(networks, name)(**kwargs)
    except TypeError:
        raise UsageError(f"it normalises images, which {name} does not; expected none.") from None
    return network


def _size(entries: Entries, name: str, axis: int) -> int:
    """Of an entry along an axis; 1 if it has none such."""
    shape = entries[name].shape if name in entries else ()
    return shape[axis] if len(shape) > axis else 1


def _image_shape(entries: Entries) -> tuple[int, int, int]:
    """(H, W, C) that the entries are of; 32x32 of a network that takes any size."""
    side = 32
    if "9.weight" in entries:  # Of SmallCNN, which strides twice and ends with 64 channels.
        side = 4 * math.isqrt(_size(entries, "9.weight", 1) // 64)
    for _, last in MASKS.values():
        if last in entries:
            return side, side, _size(entries, last, 0)
    return side, side, _size(entries, "0.weight" if "0.weight" in entries else "conv1.weight", 1)


def _check(network: nn.Module, entries: Entries, image_shape: tuple[int, int, int]) -> None:
    """Raises UsageError naming the first entry that is missing, unknown, misshapen or not finite.

    It also says what network the entries look like.
    """
    images = jax.ShapeDtypeStruct((1, *image_shape), jnp.float32)
    inputs = (images, images) if hasattr(network, "sees") else (images,)
    made = jax.eval_shape(network.init, jax.random.key(0), *inputs)
    blank = jax.tree.map(lambda leaf: np.broadcast_to(np.float32(0), leaf.shape), made)
    state_dict = pytorch_names.to_state_dict(type(network).__name__, blank)
    want = {name: value.shape for name, value in state_dict.items()}
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


def _remedy(network: nn.Module, entries: Entries) -> str:
    with contextlib.suppress(UsageError):
        found = describe(infer(entries, {}))
        if found != describe(network):
            return f"the file is of {found}: choose that network, and its data set."
    return "the file is incomplete, or of other images, or of a network that is not among ours."


def _check_constants(network: nn.Module, said: Constants) -> None:
    """Raises UsageError if the file normalises images otherwise than the network."""
    here = {name: tuple(getattr(network, name, ())) for name in ("mean", "std")}
    for name, value in here.items():
        there = said.get(name, ())
        if len(there) != len(value) or not np.allclose(there, value, TOLERANCE, 0):
            raise UsageError(
                f"it normalises images with {name} {list(there)}, expected {list(value)}; give "
                "the network that of the file (config.classifier.mean, std and normalize)."
            )


def describe(network: nn.Module) -> str:
    """ "WideResNet(num_classes=10, depth=34, widen_factor=10)"."""
    fields = ("num_classes", "depth", "widen_factor", "sees")
    said = [f"{field}={getattr(network, field)}" for field in fields if hasattr(network, field)]
    return f"{type(network).__name__}({', '.join(said)})"


def _array(value: np.ndarray) -> jax.Array:
    """On the device, in float32 at least."""
    return jnp.asarray(value if value.dtype.itemsize > 2 else value.astype(np.float32))


@contextlib.contextmanager
def _naming(path: pathlib.Path) -> Iterator[None]:
    """Begins what goes wrong with the file's name."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
