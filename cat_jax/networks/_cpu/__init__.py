"""`convolve`: a convolution that XLA:CPU computes fast, gradients in loops included.

Delete this folder, and let `networks.conv.Conv` call `jax.lax.conv_general_dilated`, once XLA:CPU
calls its library for convolutions whose gradients JAX derives, inside loops too.
"""

from cat_jax.networks._cpu.convolution import convolve

__all__ = ["convolve"]
