"""How the inside of a network is computed: activation, precision, and what backward passes keep.

The inside lies between the first convolution and the last layer. Both ends stay in the images'
dtype: bfloat16 has 8 bits, and would round a pixel by as much as half of 1/255.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
from flax import linen as nn

from cat_jax.types import Array

# Values of config.classifier.activation; GELU is exact, as PyTorch's.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
}


def cast(x: Array, dtype: Any) -> Array:
    """`x` in `dtype`; unchanged if that is None."""
    return x if dtype is None else x.astype(dtype)


def recomputed(block: type[nn.Module], remat: bool) -> type[nn.Module]:
    """The block, called (x, train); with `remat` the backward pass computes its inside again.

    It then keeps the input of each block alone: less memory, and one more forward.
    """
    return nn.remat(block, static_argnums=(2,)) if remat else block
