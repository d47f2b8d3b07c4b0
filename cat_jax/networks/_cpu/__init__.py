"""Convolution kernels for XLA:CPU, behind `conv.conv`."""
