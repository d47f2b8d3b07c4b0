"""Lists the networks that come with cat_jax, with their accuracies.

    python -m cat_jax.weights

In Python, `cat_jax.weights.load(NAME)` loads one. To attack it:

    python -m cat_jax.main --mode=evaluate --weights=NAME --config=CONFIG ...
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tabulate import tabulate

from cat_jax.experiment import labels
from cat_jax.weights import bundled

SHOWN = ("natural", "pgd20", "standard")
HEAD = ("name", "data", "network", "threat", "accuracy in percent")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the list."""
    argparse.ArgumentParser(
        prog="python -m cat_jax.weights",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args(arguments)
    rows = [_row(name, about) for name, about in bundled.descriptions()]
    print(tabulate(rows, HEAD, tablefmt="pipe", disable_numparse=True))
    print(f"\nTheir model cards: {bundled.FOLDER}")
    return 0


def _row(name: str, about: Mapping[str, Any]) -> list[str]:
    results = about["results"]
    threats = dict.fromkeys(filter(None, map(labels.threat, results)))
    # Of an attack on some images and on all, the result on more images.
    by_size = sorted(results, key=lambda line: line["num_examples"])
    most = {line["attack"]: line for line in by_size}
    accuracies = ", ".join(
        f"{attack} {100 * most[attack]['accuracy']:.1f} ({most[attack]['num_examples']} images)"
        for attack in SHOWN
        if attack in most
    )
    return [name, about["config"]["dataset"], about["network"], ", ".join(threats), accuracies]


if __name__ == "__main__":
    sys.exit(main())
