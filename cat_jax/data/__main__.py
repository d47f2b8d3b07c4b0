"""Prepares a data set once, so that runs can read it.

    python -m cat_jax.data --dataset=cifar10
    python -m cat_jax.data --dataset=cifar10 --source=Downloads

The first command lets TensorFlow Datasets download the images; it needs the
extra `prepare`. The second reads the original archives from a folder, and
needs neither TensorFlow nor a network.
"""

import argparse
import sys
from collections.abc import Sequence

from cat_jax.data.archives import DATA_DIR, ENVIRONMENT
from cat_jax.data.prepare import find, preparable, prepare
from cat_jax.errors import UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; 0 if the data set is there afterwards, 2 if the user has to act."""
    parser = argparse.ArgumentParser(
        prog="python -m cat_jax.data",
        usage="python -m cat_jax.data --dataset=NAME [--source=FOLDER]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--dataset", required=True, metavar="NAME", help=f"{', '.join(preparable())}, tfds:NAME"
    )
    parser.add_argument(
        "--data_dir",
        default="",
        metavar="FOLDER",
        help=f"folder of the prepared data; default: ${ENVIRONMENT}, or {DATA_DIR}",
    )
    parser.add_argument("--source", metavar="FOLDER", help="folder with the original archives")
    options = parser.parse_args(arguments)
    try:
        before = find(options.dataset, options.data_dir)
        path = prepare(options.dataset, options.data_dir, options.source)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if before:
        print(f"{options.dataset} is there already, in {path}; nothing was written.")
    else:
        print(f"{options.dataset} is ready in {path}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
