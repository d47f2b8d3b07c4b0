"""From a config to the parts of an experiment. Below this room, modules take plain arguments."""
