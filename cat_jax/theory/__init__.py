"""Computes the paper's theory in the plane: both theorems and the boundaries that are learned."""
