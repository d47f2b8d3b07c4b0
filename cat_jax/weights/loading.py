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
import hashlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.tree_util import Partial

from cat_jax.errors import UsageError
from cat_jax.networks.record import named
from cat_jax.storage import paths
from cat_jax.types import LogitsFn, PyTree
from cat_jax.weights import fit, pytorch_names, recognition, weight_files
from cat_jax.weights.recognition import Constants, Entries, describe, describe_short, infer
from cat_jax.weights.weight_files import ANY, CLASSIFIER, MASK_NET, Part

__all__ = [
    "CLASSIFIER",
    "MASK_NET",
    "Loaded",
    "describe",
    "describe_short",
    "fingerprint",
    "infer",
    "load",
]


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
    states_normalisation: bool = True,
) -> Loaded:
    """The network in a file.

    No file tells `PreActResNet18` from a network whose shortcut convolutions take x instead of
    relu(bn1(x)): it has the same names and shapes, and loads, with wrong logits.

    Args:
      file: .safetensors; with PyTorch, .pth or .pt.
      network: network that the file has to fit; by default the one that its entries are of.
      part: "classifier" or "mask_net", of a file that holds both.
      image_shape: (H, W, C) that the network has to take; by default what it was trained on.
      states_normalisation: whether `network` has the mean and std that the file was trained with;
        False: its mean and std are defaults, and the file itself has to state them.

    Raises:
      UsageError: if the file cannot be read, or its names, shapes or normalisation are not those
        of the network; one line that begins with the file.
    """
    path = paths.local_path(file, "the file of weights")
    parts = weight_files.read(path)
    with _naming(path):
        if part not in parts and ANY not in parts:
            raise UsageError(f"it holds {', '.join(parts)}; expected {part}.")
        chosen = parts.get(part) or parts[ANY]
        by_name = recognition.fields_of_file_name(path.name)
        entries, constants = _open(chosen, by_name.get("classifier.name", ""))
        given = network
        network = network or _rebuild(chosen.about) or infer(entries, constants or {})
        shape = (
            image_shape
            or tuple(chosen.about.get("image_shape", ()))
            or recognition.image_shape(entries)
        )
        fit.check_entries(network, entries, shape, is_mask=part == MASK_NET)
        if constants is not None:
            fit.check_constants(network, constants)
        elif hasattr(network, "mean") and (given is None or not states_normalisation):
            raise UsageError(fit.unknown_normalisation(network, is_from_config=given is not None))
        variables = pytorch_names.from_state_dict(network, entries)
    fields = by_name | chosen.about.get("config", {})
    digest = weight_files.digest(path)
    return Loaded(network, jax.tree.map(_array, variables), path, digest, fields)


def _open(part: Part, authors: str) -> tuple[Entries, Constants | None]:
    """The entries without prefixes, and mean and std: {} for none, None if nothing tells.

    Args:
      part: network of a file.
      authors: the authors' network that the file has to be by its name, or "".
    """
    entries, constants = pytorch_names.unwrap(part.entries)
    if not constants and "mean" in part.about:
        constants = {name: tuple(part.about[name]) for name in ("mean", "std")}
    if constants:
        identity = not any(constants["mean"]) and all(s == 1 for s in constants["std"])
        return entries, {} if identity else constants
    if authors and isinstance(network := infer(entries, {}), named(authors).module_class or ()):
        return entries, recognition.authors_constants(network.num_classes)  # type: ignore[attr-defined]
    return entries, None


def _rebuild(about: Mapping[str, Any]) -> nn.Module | None:
    """The network that a file of ours describes; None if the file is not of ours."""
    if "arguments" not in about:
        return None
    arguments = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in about["arguments"].items()
    }
    try:
        return named(about["network"]).build(**arguments)
    except UsageError as error:
        modules = ", ".join(about.get("plugins", ())) or "the module that registers it"
        raise UsageError(f"it holds {about['network']}; import {modules} first.") from error


def fingerprint(variables: PyTree) -> str:
    """SHA-256 of parameters and running statistics: equal for equal weights, wherever they are."""
    total = hashlib.sha256()
    leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(variables))
    for path, leaf in leaves:
        array = np.ascontiguousarray(leaf)
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        total.update(f"{name} {array.dtype} {list(array.shape)}".encode())
        total.update(array.tobytes())
    return total.hexdigest()


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
