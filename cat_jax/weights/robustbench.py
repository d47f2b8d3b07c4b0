"""Networks of cat_jax as PyTorch modules, for RobustBench, AutoAttack and torchattacks.

    from robustbench import benchmark
    from cat_jax.weights.robustbench import load_model

    model = load_model("runs/digits")  # A run's folder, or a file of weights.
    natural, robust = benchmark(model, dataset="cifar10", threat_model="Linf", eps=8 / 255)

Needs PyTorch (extra `bench`). JAX computes logits and gradients, compiled once for each power of
two that a batch is padded to; images go from one library to the other through the host.
"""

import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from cat_jax import weights
from cat_jax.attacks.callables import as_logits_fn
from cat_jax.errors import UsageError
from cat_jax.storage.paths import local_path
from cat_jax.storage.run_folder import RunFolder
from cat_jax.types import Array, LogitsFn
from cat_jax.weights import trained
from cat_jax.weights.weight_files import import_torch

torch: Any = import_torch("cat_jax.weights.robustbench")


def load_model(
    path: str | pathlib.Path, network: nn.Module | None = None, *, checkpoint: str = "best"
) -> "Model":
    """A trained classifier as a PyTorch module, in inference mode.

    Args:
      path: a run's folder, or a file of weights as `weights.load` takes it.
      network: network that a file of weights must fit; see `weights.load`.
      checkpoint: name of the run's checkpoint: best, last, best_average or last_average.

    Raises:
      UsageError: if there is no such run or file, or the file does not fit.
    """
    if RunFolder(local_path(path, "path")).has_config():
        return Model(trained.load(path, checkpoint).classifier.logits_fn)
    return Model(weights.load(path, network).logits_fn)


class Model(torch.nn.Module):  # type: ignore[misc]
    """A `LogitsFn` as a PyTorch module: images [B, C, H, W] in [0, 1] -> logits [B, K].

    Gradients flow to the images, once. There are no parameters to train, and `train()` changes
    nothing. Images may be on any device; JAX uses its own.
    """

    def __init__(self, logits_fn: LogitsFn) -> None:
        super().__init__()
        self._logits_fn = logits_fn
        # Because other libraries read the device of a module from its parameters.
        self.device_of = torch.nn.Parameter(torch.zeros(()), requires_grad=False)
        self.eval()

    def forward(self, images: Any) -> Any:
        """Float tensor [B, C, H, W] -> logits [B, K], of its type and on its device.

        Raises:
          UsageError: for another shape or type.
        """
        if images.ndim != 4 or not images.is_floating_point():
            raise UsageError(
                f"The images are {images.dtype} {list(images.shape)}; expected floating point "
                "[B, C, H, W] in [0, 1]."
            )
        return _Logits.apply(images, self._logits_fn)


class _Logits(torch.autograd.Function):  # type: ignore[misc]
    """Logits whose gradient JAX computes."""

    @staticmethod
    def forward(ctx: Any, images: Any, logits_fn: LogitsFn) -> Any:
        inputs = _to_jax(images)
        with jax.default_matmul_precision("highest"):
            logits_fn, _ = as_logits_fn(logits_fn, inputs.transpose(0, 2, 3, 1))
        if ctx.needs_input_grad[0]:
            logits, ctx.pull_back = _logits_and_pull_back(logits_fn, inputs)
        else:
            logits = _logits(logits_fn, inputs)
        return _to_torch(logits, images)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Any) -> tuple[Any, None]:
        return _to_torch(_pull_back(ctx.pull_back, _to_jax(grad)), grad), None


@jax.jit
def _logits(logits_fn: LogitsFn, images: Array) -> Array:
    """[B, C, H, W] -> [B, K], at full float32 precision."""
    with jax.default_matmul_precision("highest"):
        return logits_fn(images.transpose(0, 2, 3, 1))


@jax.jit
def _logits_and_pull_back(logits_fn: LogitsFn, images: Array) -> tuple[Array, Any]:
    """Also the function from a gradient of the logits to one of the images: a pytree."""
    pulled: tuple[Array, Any] = jax.vjp(functools.partial(_logits, logits_fn), images)
    return pulled


@jax.jit
def _pull_back(pull_back: Any, grad: Array) -> Array:
    with jax.default_matmul_precision("highest"):
        of_images: Array = pull_back(grad)[0]
        return of_images


def _to_jax(tensor: Any) -> Array:
    """A copy, padded with zeros to the next power of two, so that few shapes are compiled.

    It copies because PyTorch's attacks change tensors in place while JAX may still read them.
    """
    array = tensor.detach().cpu().numpy()
    size = 1 << max(len(array) - 1, 0).bit_length()
    return jnp.asarray(np.pad(array, [(0, size - len(array)), *((0, 0),) * (array.ndim - 1)]))


def _to_torch(array: Array, like: Any) -> Any:
    """The first `len(like)` rows, with its type and on its device."""
    return torch.from_numpy(np.array(array)[: len(like)]).to(like.device, like.dtype)
