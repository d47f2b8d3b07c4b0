"""PyTorch state dicts of the published networks <-> our variables.

Our modules carry the published names, with "layer1.0" written "layer1_0", so one rule serves all
networks; the records of networks published as bare sequences hold their names. The state dict of
a network that is not published in PyTorch has Flax's names and layout: "params/Dense_0/kernel".
"""

import re
from collections.abc import Mapping

import numpy as np
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from cat_jax.errors import UsageError
from cat_jax.networks.record import StateDict, named, record_of
from cat_jax.types import PyTree

MAX_MODULES = 8  # In an error.
STATISTICS = {"running_mean": "mean", "running_var": "var"}
LEAVES = ("weight", "bias", *STATISTICS, "num_batches_tracked")
PREFIX = "module."  # DataParallel's.
# Modules that their networks build but never run: a block of TRADES, MART and FAT, and a layer of
# an entry of RobustBench.
UNUSED = ("sub_block1.", "model_preact_hl1.")
# Other wrappers: a module that holds the network as `model`, a compiled one, or
# Sequential(normaliser, network), whose "1." is not that of a bare sequence, as in "1.weight".
WRAPPERS = re.compile(r"^(?:(?:module|model|_orig_mod)\.|1\.(?=\w+\.))+")
# The normaliser's constants, as RobustBench, AWP and that Sequential name them.
NORMALISER = re.compile(r"^(?:(?:normalize|normalizer|normalization|0)\.)?(mu|mean|sigma|std)$")


def from_state_dict(network: str | nn.Module, state_dict: Mapping[str, np.ndarray]) -> PyTree:
    """Variables {"params": ..., "batch_stats": ...} of a network.

    Args:
      network: the network, or its registered name, such as "PreActResNet18".
      state_dict: name -> array in PyTorch's layout, with or without DataParallel's "module.";
        `num_batches_tracked` is ignored.

    Raises:
      UsageError: for an unknown name, or an entry of no known kind of layer. The function does not
        check for missing entries and wrong shapes.
    """
    form = _form(network)
    if form is None:
        flat = {tuple(name.split("/")): np.asarray(value) for name, value in state_dict.items()}
        return {"params": {}, "batch_stats": {}} | unflatten_dict(flat)
    flat = {}
    for torch_name, value in state_dict.items():
        name = torch_name.removeprefix(PREFIX)
        module, _, leaf = name.rpartition(".")
        value = np.asarray(value)
        _check_entry(form, name, value.shape)
        if leaf == "num_batches_tracked" or name.startswith(UNUSED):
            continue
        module = form.modules.get(module, module)
        path = re.sub(r"\.(\d+)", r"_\1", module).split(".")
        if leaf in STATISTICS:
            flat["batch_stats", *path, STATISTICS[leaf]] = value
        elif leaf == "bias":
            flat["params", *path, "bias"] = value
        else:
            flat["params", *path, "kernel" if value.ndim > 1 else "scale"] = to_ours(value)
    return {"params": {}, "batch_stats": {}} | unflatten_dict(flat)


def to_state_dict(network: str | nn.Module, variables: PyTree) -> dict[str, np.ndarray]:
    """The inverse of `from_state_dict`, without `num_batches_tracked`."""
    form = _form(network)
    flat = flatten_dict(variables)
    if form is None:
        return {"/".join(path): np.asarray(value) for path, value in flat.items()}
    names = {ours: theirs for theirs, ours in form.modules.items()}
    leaves = {ours: theirs for theirs, ours in STATISTICS.items()}
    leaves |= {"kernel": "weight", "scale": "weight", "bias": "bias"}
    state_dict = {}
    for (_, *path, leaf), value in flat.items():
        module = re.sub(r"_(\d+)", r".\1", ".".join(path))
        state_dict[f"{names.get(module, module)}.{leaves[leaf]}"] = to_theirs(np.asarray(value))
    return state_dict


def unwrap(
    state_dict: Mapping[str, np.ndarray],
) -> tuple[dict[str, np.ndarray], dict[str, tuple[float, ...]]]:
    """The entries of the network without prefixes of wrappers, and its normalisation.

    A prefix is one of `WRAPPERS`, or any that all entries share, such as "net.".

    Returns:
      name -> array, without blocks that never run; and {"mean": ..., "std": ...}, one number for
      each channel, or {} if the state dict has none.
    """
    entries, constants = {}, {}
    names = _without_prefixes([*state_dict])
    for name, value in zip(names, state_dict.values(), strict=True):
        if match := NORMALISER.match(name):
            kind = "mean" if match[1] in ("mu", "mean") else "std"
            # Converts float32 through text, so that 0.4914 stays 0.4914.
            constants[kind] = tuple(float(str(number)) for number in np.ravel(value))
        elif not name.startswith(UNUSED) and not name.endswith("num_batches_tracked"):
            entries[name] = value
    if len(constants) == 1:
        raise UsageError(f"it has a {next(iter(constants))} alone; expected both mean and std.")
    return entries, constants


def _without_prefixes(names: list[str]) -> list[str]:
    """The names of a state dict without the prefixes of modules around the network."""
    names = [WRAPPERS.sub("", name) for name in names]
    inside = [name for name in names if not NORMALISER.match(name)]
    common = {name.partition(".")[0] for name in inside if "." in name}
    if len(inside) < 2 or len(common) != 1 or not all("." in name for name in inside):
        return names
    (module,) = common
    return _without_prefixes([name.removeprefix(f"{module}.") for name in names])


def to_ours(weight: np.ndarray) -> np.ndarray:
    """(O, I, h, w) -> (h, w, I, O); (O, I) -> (I, O); a vector stays."""
    return weight.transpose(2, 3, 1, 0) if weight.ndim == 4 else weight.T


def to_theirs(weight: np.ndarray) -> np.ndarray:
    """(h, w, I, O) -> (O, I, h, w); (I, O) -> (O, I); a vector stays."""
    return weight.transpose(3, 2, 0, 1) if weight.ndim == 4 else weight.T


def _form(network: str | nn.Module) -> StateDict | None:
    """The names of the network's weights in PyTorch; None if it is not published there."""
    record = named(network) if isinstance(network, str) else record_of(network)
    return record.state_dict if record else None


def _check_entry(form: StateDict, name: str, shape: tuple[int, ...]) -> None:
    """Raises UsageError for an entry that the general rule would convert wrongly."""
    module, _, leaf = name.rpartition(".")
    if not module or leaf not in LEAVES:
        raise UsageError(
            f"entry {name!r}; expected <module>.<leaf> with a leaf of {', '.join(LEAVES)}: "
            "pass the network's own state dict, not the file that holds it."
        )
    if form.modules and module not in form.modules:
        modules = ", ".join([*form.modules][:MAX_MODULES])
        raise UsageError(
            f"entry {name!r}; the network has the modules {modules}"
            f"{', ...' if len(form.modules) > MAX_MODULES else ''}: "
            "rename the entry, or name another network."
        )
    if leaf == "weight" and len(shape) not in (1, 2, 4):
        raise UsageError(
            f"entry {name!r} has shape {list(shape)}; expected 1, 2 or 4 dimensions, "
            "those of a normalisation, a linear layer or a convolution."
        )
