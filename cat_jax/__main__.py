"""Lists the commands: python -m cat_jax."""

import sys
import textwrap
from collections.abc import Sequence

from cat_jax import __version__

COMMANDS = {
    "main": "Trains and evaluates one experiment.",
    "plan": "States what a run needs on GPUs or TPUs that are not there.",
    "data": "Prepares a data set once.",
    "report": "Compares runs, or prints a table of the paper with their numbers.",
    "weights": "Lists the robust networks that come with cat_jax.",
    "weights.export": "Exports networks, adversarial images, or a submission to RobustBench.",
    "theory": "Computes the theorems of the paper for classifiers in the plane.",
}


def main(arguments: Sequence[str]) -> int:
    """Prints the list, or the version for --version; returns 2 for anything else."""
    if list(arguments) == ["--version"]:
        print(f"cat_jax {__version__}")
        return 0
    if not set(arguments) <= {"-h", "--help"}:
        print(
            f"error: {' '.join(arguments)!r} is not understood; expected nothing, --help or "
            "--version. A command is a module: python -m cat_jax.main.",
            file=sys.stderr,
        )
        return 2
    print(f"cat_jax {__version__}: Calibrated Adversarial Training. Each command has --help:\n")
    for name, line in COMMANDS.items():
        command = f"  {f'python -m cat_jax.{name}':<32}  "
        print(textwrap.fill(line, 80, initial_indent=command, subsequent_indent=" " * len(command)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
