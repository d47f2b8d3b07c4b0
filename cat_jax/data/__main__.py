"""Prepares a data set, once.

python -m cat_jax.data --dataset=cifar10 [--source=FOLDER]
"""

import argparse
import sys
from collections.abc import Sequence

from cat_jax.data import records
from cat_jax.data.prepare import prepare
from cat_jax.data.sources import DATA_DIR
from cat_jax.errors import UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; 0 if the data set is there afterwards, 2 if the user has to act."""
    parser = argparse.ArgumentParser(prog="python -m cat_jax.data", description=__doc__)
    parser.add_argument("--dataset", required=True, help=", ".join(records.FORMS))
    parser.add_argument("--data_dir", default=DATA_DIR, help="where to write (%(default)s)")
    parser.add_argument(
        "--source",
        help="folder with the original archives, read without TensorFlow; without it tfds "
        "downloads them and needs TensorFlow (the extra `prepare`)",
    )
    options = parser.parse_args(arguments)
    try:
        there = records.find_folder(options.dataset, options.data_dir)
        folder = prepare(options.dataset, options.data_dir, options.source)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if there:
        print(f"{options.dataset} is there already, in {folder}; nothing was written.")
    else:
        print(f"{options.dataset} is ready in {folder}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
