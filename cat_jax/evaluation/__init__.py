"""Attacks on trained networks, and the numbers they leave."""
