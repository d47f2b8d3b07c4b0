"""Networks with weights from a file: PyTorch checkpoints, and exported files.

    from cat_jax import weights

    loaded = weights.load("model.safetensors")  # Or the name of a network of cat_jax.
    logits = loaded.network.apply(loaded.variables, images)  # or loaded.logits_fn(images)

`load` recognises the network by the names and shapes in the file. If neither the file nor its
name (such as the authors' RN_b_5_b1_01_e8_cw.pth) states the normalisation, pass the network:

    network = networks.PreActResNet18(mean=(0.4914, 0.4822, 0.4465), std=(0.2471, 0.2435, 0.2616))
    loaded = weights.load("model_best.pth", network)
"""

import contextlib
import hashlib
import pathlib
from collections.abc import Collection, Iterator, Mapping
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
from cat_jax.weights import bundled, fit, pytorch_names, recognition, weight_files
from cat_jax.weights.recognition import Constants, Entries, infer
from cat_jax.weights.weight_files import ANY, CLASSIFIER, MASK_NET, Part


class Loaded(NamedTuple):
    """A network and its weights.

    Attributes:
      network: a classifier or a mask network.
      variables: {"params": ..., "batch_stats": ...}, what its `apply` takes.
      file: path of the file.
      digest: SHA-256 of the file.
      fields: config fields of their training that the file states, by their paths.
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
    fields: Collection[str] | None = None,
) -> Loaded:
    """The network in a file.

    Names and shapes do not show normalisation, activation, and where the shortcuts of a
    `PreActResNet18` start. `load` takes them from the file, from the name of the authors' files,
    and from RobustBench's (`cifar10/Linf/NAME.pt`). Otherwise the activation is that of public
    checkpoints with the same names, and the others have to be stated by the network.

    Args:
      file: .safetensors; with PyTorch, .pth or .pt; or one of `bundled.names`, such as
        "digits_cat_cent".
      network: network that the file must fit; by default `load` recognises it.
      part: "classifier" or "mask_net", for a file that holds both.
      image_shape: (H, W, C) that the network must accept; by default that of its training.
      fields: arguments that `network` states on purpose, "normalize" for its mean and std; None:
        all. The file or its name has to state the others.

    Raises:
      UsageError: if the file cannot be read, or its names, shapes or normalisation are not those
        of the network, or it does not state what decides its logits; one line that begins with
        the file.
    """
    path = bundled.file_of(file) or paths.local_path(file, "the file of weights")
    parts = weight_files.read(path)
    with _naming(path):
        if part not in parts and ANY not in parts:
            raise UsageError(f"it holds {', '.join(parts)}; expected {part}.")
        content = parts.get(part) or parts[ANY]
        by_name = recognition.fields_of_file_name(path.name)
        entries, constants = _open(content, by_name.get("classifier.name", ""))
        is_given, stated = network is not None, content.about.get("arguments")
        if stated is None:
            stated = recognition.arguments_of_file(path, entries)
        if constants is None and "mean" in stated:
            constants = {name: stated[name] for name in ("mean", "std") if stated[name]}
        network = network or _rebuild(content.about) or infer(entries, constants or {}, stated)
        shape = (
            image_shape
            or tuple(content.about.get("image_shape", ()))
            or recognition.image_shape(entries)
        )
        fit.check_entries(network, entries, shape, is_mask=part == MASK_NET)
        if constants is not None:
            fit.check_constants(network, constants)
        elif hasattr(network, "mean") and not (is_given and _states_normalisation(fields)):
            raise UsageError(fit.unknown_normalisation(network, is_from_config=is_given))
        fit.check_unseen(network, stated, fields)
        variables = pytorch_names.from_state_dict(network, entries)
    training = by_name | content.about.get("config", {})
    digest = weight_files.digest(path)
    return Loaded(network, jax.tree.map(_array, variables), path, digest, training)


def _states_normalisation(fields: Collection[str] | None) -> bool:
    return fields is None or not {"mean", "std", "normalize"}.isdisjoint(fields)


def _open(part: Part, authors: str) -> tuple[Entries, Constants | None]:
    """The entries without prefixes, and mean and std: {} for none, None if they are unknown.

    Args:
      part: network of a file.
      authors: name of the authors' network that the name of the file states, or "".
    """
    entries, constants = pytorch_names.unwrap(part.entries)
    if not constants and "mean" in part.about:
        constants = {name: tuple(part.about[name]) for name in ("mean", "std")}
    if constants:
        identity = not any(constants["mean"]) and all(s == 1 for s in constants["std"])
        return entries, {} if identity else constants
    return entries, recognition.authors_constants(entries, authors) if authors else None


def _rebuild(about: Mapping[str, Any]) -> nn.Module | None:
    """The network that an exported file describes; None for files of other programs."""
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
    """SHA-256 of parameters and running statistics, which is equal for equal weights."""
    total = hashlib.sha256()
    leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(variables))
    for path, leaf in leaves:
        array = np.ascontiguousarray(leaf)
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        total.update(f"{name} {array.dtype} {list(array.shape)}".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def _array(value: np.ndarray) -> jax.Array:
    """The array on the device, in float32 or more."""
    return jnp.asarray(value if value.dtype.itemsize > 2 else value.astype(np.float32))


@contextlib.contextmanager
def _naming(path: pathlib.Path) -> Iterator[None]:
    """Puts the name of the file before errors of the block."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
