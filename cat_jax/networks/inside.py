"""How the inside of a network is computed: in how many bits, and what backward passes keep.

The inside lies between the first convolution and the last layer. Both ends stay in the images'
dtype: bfloat16 has 8 bits, and would round a pixel by as much as half of 1/255.
"""

from typing import Any

from flax import linen as nn

from cat_jax.types import Array


def cast(x: Array, dtype: Any) -> Array:
    """`x` in `dtype`; as it is if that is None."""
    return x if dtype is None else x.astype(dtype)


def kept(block: type[nn.Module], remat: bool) -> type[nn.Module]:
    """The block, called (x, train); with `remat` its inside is computed again going backward.

    Of each block only the input is kept then: less memory, and one more forward.
    """
    return nn.remat(block, static_argnums=(2,)) if remat else block
