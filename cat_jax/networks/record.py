"""The records of networks, which hold all that other modules need to know of a network.

The file of a network registers its record, and so do modules of users.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from flax import linen as nn

from cat_jax.errors import UsageError
from cat_jax.runtime.registry import Record, find, records_of

Shapes = Mapping[str, tuple[int, ...]]  # Of the entries of a state dict, by their names.
# Arguments that say how a network is computed in training, not which network it is.
COMPUTATION = {"axis_name", "dtype", "remat"}
MODULE_FIELDS = {"parent", "name"}  # Of every Flax module.


@dataclasses.dataclass(frozen=True)
class StateDict:
    """The names of a network's weights in PyTorch.

    Attributes:
      signature: entries that identify the network. If a file has the signatures of several
        networks, the longest one decides.
      first, last: names of the first and the last layer's weight.
      modules: PyTorch's name -> ours of every layer, for networks published as bare sequences. If
        empty, the names are ours, with "layer1.0" for "layer1_0".
      arguments: shapes -> further arguments of the constructor that they determine.
      unseen: arguments that change the outputs and neither names nor shapes, with the values of
        public checkpoints. Of several, a file of weights has to state one.
      side: shapes -> side of the images that the weights fit; 32 if any side fits.
    """

    signature: tuple[str, ...]
    first: str
    last: str
    modules: Mapping[str, str] = dataclasses.field(default_factory=dict)
    arguments: Callable[[Shapes], dict[str, Any]] = lambda shapes: {}
    unseen: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    side: Callable[[Shapes], int] = lambda shapes: 32

    def inputs(self, shapes: Shapes) -> int:
        """Number of input channels of the first layer; 1 if the shapes lack it."""
        return size(shapes, self.first, 1)

    def outputs(self, shapes: Shapes) -> int:
        """Number of outputs of the last layer, channels or classes; 1 if the shapes lack it."""
        return size(shapes, self.last, 0)


@dataclasses.dataclass(frozen=True)
class Network(Record):
    """The record of a classifier or of a mask network.

    Attributes:
      name: value of config.classifier.name or config.mask_net.name.
      make: constructor: keyword arguments -> a Flax Linen module. It gets those of the following
        arguments that its signature has: num_classes, mean, std (classifiers); sees (mask
        networks); axis_name (batch norm over all devices); dtype and remat (training steps).
      fields: further fields of config.classifier or config.mask_net that `make` takes, by the same
        names.
      multiple: number that divides the height and width of images that the network takes.
      state_dict: names of the weights in PyTorch; None: files of weights have Flax's names.
    """

    make: Callable[..., nn.Module]
    fields: tuple[str, ...] = ()
    multiple: int = 1
    state_dict: StateDict | None = None

    def __post_init__(self) -> None:
        if self.name in {other.name for other in every() if type(other) is not type(self)}:
            raise UsageError(
                f"{self.name} is a classifier's name or a mask network's; choose another name."
            )
        if self.module_class is None or not takes_train(self.module_class):
            return
        if inspect.signature(self.module_class.__call__).parameters["train"].default is not False:
            raise UsageError(
                f"{self.name} takes train= without a default of False; write "
                "__call__(self, images, *, train=False): evaluations do not pass train."
            )

    @property
    def module_class(self) -> type[nn.Module] | None:
        """Class of the modules; None where `make` is a function."""
        make: Any = self.make
        while isinstance(make, functools.partial):
            make = make.func
        return make if isinstance(make, type) else None

    @property
    def bound(self) -> Mapping[str, Any]:
        """Arguments that `make`, a partial, sets."""
        return self.make.keywords if isinstance(self.make, functools.partial) else {}

    @property
    def takes(self) -> set[str]:
        """Names of the arguments that `make` takes and does not set."""
        return {*inspect.signature(self.make).parameters} - {*self.bound} - MODULE_FIELDS

    def build(self, **arguments: Any) -> nn.Module:
        """The network, with those of the arguments that it takes."""
        takes = self.takes
        return self.make(**{name: value for name, value in arguments.items() if name in takes})

    def arguments_of(self, module: nn.Module) -> dict[str, Any]:
        """Arguments by which `make` gives this network again, computed as usual."""
        names = [name for name in inspect.signature(self.make).parameters if name in self.takes]
        values = {
            name: getattr(module, name)
            for name in names
            if name not in COMPUTATION and hasattr(module, name)
        }
        return {name: value for name, value in values.items() if _is_plain(value)}


@dataclasses.dataclass(frozen=True)
class Classifier(Network):
    """A classifier: images [B, H, W, C] in [0, 1] -> logits [B, K]. Attributes as `Network`."""


@dataclasses.dataclass(frozen=True)
class MaskNet(Network):
    """A mask network: images and delta [B, H, W, C] -> mask [B, H, W, C]; as `Network`."""


def every() -> list[Network]:
    """All networks."""
    return [*records_of(Classifier).values(), *records_of(MaskNet).values()]


def named(name: str) -> Network:
    """The classifier or mask network of a name.

    Raises:
      UsageError: if there is none.
    """
    kind = MaskNet if name in records_of(MaskNet) else Classifier
    return find(kind, "the network", name)


def record_of(module: nn.Module) -> Network | None:
    """The record that a network was built from; None if there is none.

    If several records have its class, the one whose `make` sets most of its arguments.
    """

    def fits(record: Network) -> bool:
        is_equal = (getattr(module, name) == value for name, value in record.bound.items())
        return record.module_class is type(module) and all(is_equal)

    return max(filter(fits, every()), key=lambda record: len(record.bound), default=None)


def training_mode(module: nn.Module) -> dict[str, Any]:
    """The keyword arguments that call a network in training mode."""
    return {"train": True} if takes_train(module) else {}


def takes_train(module: nn.Module | type[nn.Module]) -> bool:
    """Whether a network accepts train=; one that computes the same in training may omit it."""
    return "train" in inspect.signature(module.__call__).parameters


def size(shapes: Shapes, name: str, axis: int) -> int:
    """Length of an entry along an axis; 1 if there is no such entry or axis."""
    shape = shapes.get(name, ())
    return shape[axis] if len(shape) > axis else 1


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold the value, with lists for tuples."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))
