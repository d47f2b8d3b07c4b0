"""Algorithm 1: the state, its phases, and the compiled training step."""
