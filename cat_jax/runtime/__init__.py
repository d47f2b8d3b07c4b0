"""Processes, devices, signals and the terminal."""
