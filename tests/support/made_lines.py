"""Lines of results.jsonl and checks.jsonl as an evaluation writes them, with made-up outcomes."""

from cat_jax.experiment.evaluation_attacks import evaluation_attacks

ORIGIN = {
    "date": "2026-01-01 00:00:00+00:00",
    "device": "cpu",
    "git_sha": "abc",
    "versions": {"jax": "0"},
    "config": "123",
}


def conditions(config, names=None):
    """The conditions of each attack of a resolved config, by name; only `names` if given."""
    config = config.copy_and_resolve_references()
    config.test.unclipped = True
    if names:
        config.evaluation = ",".join(names)
    found = {named.name: named.conditions for named in evaluation_attacks(config)}
    return {name: found[name] for name in names or found}


def attacked(config, checkpoint="best", step=12, **changes):
    """What is attacked: a checkpoint of a run of a config."""
    return {
        "dataset": config.dataset,
        "data_sha": "0123456789ab",
        "classifier": config.classifier.name,
        "network": {},
        "plugins": {},
        "method": config.method.name,
        "variant": config.variant,
        "seed": config.seed,
        "checkpoint": checkpoint,
        "step": step,
        "weights": f"{step:064d}" if step is not None else "f" * 64,
        "file": None,
        "conventions": config.conventions,
        "selection": config.selection,
        "num_devices": 1,
        "sync_batch_norm": True,
        "training": {},
    } | changes


def result(attacked, conditions, accuracy, *, size=1000, subset="all", half=0.004, **changes):
    """A line of results.jsonl."""
    number = {"precision": "float32", "seed": 0, "num_examples": size, "subset": subset}
    outcome = {"accuracy": accuracy, "interval": [accuracy - half, accuracy + half]}
    outcome |= {"num_attacked": size, "mean_queries": 20.0, "seconds": 1.0}
    return {
        "attacked": attacked,
        "conditions": conditions | number | changes,
        "outcome": outcome | ORIGIN,
    }
