"""Files of a run, each of which is complete or absent."""
