"""The paper's tables and figures, filled from runs. Imports no jax."""
