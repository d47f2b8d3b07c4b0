"""Runs of the paper's rows with numbers that nobody measured, for the tests of tables and pages."""

import made_lines

from cat_jax.experiment import settings
from cat_jax.paper import commands
from cat_jax.paper.catalogue import TABLES
from cat_jax.storage.files import write_json_lines as write_lines
from cat_jax.storage.run_folder import RunFolder

CAT_CW = TABLES["mnist"].rows[-1]
CAT_CENT = TABLES["mnist"].rows[-3]
ACCURACIES = {"natural": 0.99, "pgd20_unclipped": 0.971, "pgd100_unclipped": 0.962, "pgd20": 0.5}


def make(folder, row, seed=0, scale=1.0, accuracies=ACCURACIES, steps=None, **overrides):
    """A run of a row, in a folder whose name says nothing; `overrides` are of its config."""
    workdir = folder / f"run{len(list(folder.iterdir())) if folder.exists() else 0}"
    workdir.mkdir(parents=True)
    config = row.resolved(commands.overrides(row, scale) | {"seed": seed} | overrides)
    RunFolder(workdir).write_config(settings.as_dict(config), {}, "")
    total = row.total_steps(settings.flat(config)) if steps is None else steps
    write_lines(workdir / "metrics.jsonl", [{"step": total, "classifier_loss": 0.1}])
    size = config.test.num_examples or 10_000
    subset = "all" if size == 10_000 else f"balanced, seed {config.test.subset_seed}"
    conditions = made_lines.conditions(config, accuracies)
    results = [
        made_lines.result(
            made_lines.attacked(config, checkpoint, total),
            conditions[attack],
            accuracy - taken,
            size=size,
            subset=subset,
        )
        for checkpoint, taken in (("last", 0.3), ("best", 0.0))
        for attack, accuracy in accuracies.items()
    ]
    if accuracies:
        write_lines(workdir / "results.jsonl", results)
    return workdir
