"""What a training step costs: time of each phase, FLOPs, memory, compilation, start."""
