"""The accuracy of runs under images that attacks found on other runs, as matrices."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from cat_jax.experiment import labels
from cat_jax.report import tables
from cat_jax.report.grids import Grid
from cat_jax.storage import lines

ITSELF = "itself (white box)"
SUFFIX = "_transfer"
CAPTION = "images found on the run of the row; accuracy in percent of the run of the column."


def transfer_grids(workdirs: Sequence[pathlib.Path]) -> list[Grid]:
    """A matrix for each attack: a row for each source, a column for each attacked classifier.

    The last row has the accuracy under the same attack on the attacked classifier itself.

    Args:
      workdirs: folders of runs.

    Returns:
      Matrices in the order of the results; none if no run was attacked with images of another.
    """
    attacks: dict[str, Mapping[str, Any]] = {}
    cells: dict[str, dict[tuple[str, str], str]] = {}
    for workdir in workdirs:
        results = tables.distinct(tables.read(workdir, "results"))
        names = [f"{workdir.name}, {name}" for name in labels.all_weights(results)]
        for line, name in zip(results, names, strict=True):
            if lines.is_transfer(line):
                key = _attack(line["conditions"])
                attacks.setdefault(key, line["conditions"])
                origin = labels.source(line["conditions"])
                cells.setdefault(key, {})[origin, name] = tables.cell(line["outcome"])
        for line, name in zip(results, names, strict=True):
            if (key := _attack(line["conditions"])) in attacks and not lines.is_transfer(line):
                cells[key][ITSELF, name] = tables.cell(line["outcome"])
    return [_grid(attacks[key], cells[key]) for key in attacks]


def _grid(conditions: Mapping[str, Any], cells: Mapping[tuple[str, str], str]) -> Grid:
    sources = sorted({source for source, _ in cells}, key=lambda source: (source == ITSELF, source))
    names = sorted({name for _, name in cells})
    body = [[s, *(cells.get((s, name), tables.DASH) for name in names)] for s in sources]
    without = {k: v for k, v in conditions.items() if k != "source"}
    attack = labels.attack(without).replace(SUFFIX, "", 1)
    return Grid("transfer", f"Transfer, {attack}: {CAPTION}", ["found on", *names], body)


def _attack(conditions: Mapping[str, Any]) -> str:
    """A text that is equal for the same attack on the classifier itself and on a source.

    On a source it runs on all images, whatever comes before it in a cascade.
    """
    plain = {k: v for k, v in labels.comparable(conditions).items() if k not in ("source", "after")}
    plain["attack"] = str(plain["attack"]).removesuffix(SUFFIX)
    return json.dumps([plain, labels.images(conditions)], sort_keys=True, allow_nan=False)
