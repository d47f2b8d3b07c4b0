"""Compiles a run for devices that are not there, and states what it needs."""
