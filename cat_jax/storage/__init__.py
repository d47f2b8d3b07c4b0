"""Files of a run: written whole or not at all."""
