"""What a step of an experiment costs, and where: time, operations, memory, compilation, start.

    python -m benchmarks.step_cost --config=cat_jax:preact_cifar10:cat_cw [--steps=5] [--out=FILE]

measures on all devices of this process, prints a table and writes JSON if asked to. Fields of the
config can be overridden as for training: --config.batch_size=32. Where the data set has not been
prepared, images are drawn at random: no time depends on what they show. The machine has to be idle
otherwise.
"""

import logging
import sys

from absl import flags
from absl import logging as absl_logging
from ml_collections import config_flags

from benchmarks.step_cost import table
from benchmarks.step_cost.measure import measure
from cat_jax.cli import command_line
from cat_jax.errors import UsageError
from cat_jax.runtime import backend
from cat_jax.storage import files, paths

FLAGS = flags.FlagValues()  # Of its own: those of training mean nothing here.
CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Config file and variant, as for training.", flag_values=FLAGS
)
PLUGIN = flags.DEFINE_multi_string(
    "plugin", [], "Your module with a network, method or data set.", flag_values=FLAGS
)
STEPS = flags.DEFINE_integer(
    "steps", 5, "How often each is timed.", lower_bound=1, flag_values=FLAGS
)
PHASES = flags.DEFINE_bool(
    "phases", True, "Time each phase too, which compiles as long again.", flag_values=FLAGS
)
OUT = flags.DEFINE_string("out", None, "JSON file to write: all numbers.", flag_values=FLAGS)


def main() -> None:
    """Measures, prints the table, writes the JSON."""
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__, FLAGS.get_help(), sep="\n")
        return
    command_line.read(FLAGS, sys.argv)
    absl_logging.set_verbosity(absl_logging.FATAL)
    backend.start_fast()
    try:
        out = paths.local_path(OUT.value, "--out") if OUT.value else None
        if out:
            files.check_writable_file(out, "--out")
        backend.check_devices()
        if CONFIG.value is None:
            raise UsageError("--config is missing; name one: --config=configs/digits.py:cat_cw.")
        overrides = [word for word in sys.argv[1:] if word.startswith(("--config", "--plugin"))]
        found = {"command": overrides, **measure(CONFIG.value, STEPS.value, PHASES.value)}
        found["summary"] = table.summary(found)
        print(table.text(found))
        if out:
            files.write_text(out, files.json_text(found, indent=1))
    except (UsageError, OSError) as error:
        command_line.fail(str(error))


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    main()
