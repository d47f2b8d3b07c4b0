"""A model card: the description of exported weights, in Markdown, beside their file."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from cat_jax import weights
from cat_jax.experiment import labels, settings
from cat_jax.experiment.limits import radius_text
from cat_jax.experiment.method import method_record
from cat_jax.networks.record import named
from cat_jax.storage import lines, provenance
from cat_jax.storage.lines import Line
from cat_jax.weights.trained import Trained

TEMPLATE = """# {title}

{network}, {num_params:,} parameters. Images are [B, H, W, C] in [0, 1]{in_pytorch};
{normalised}. The outputs are logits.

## Files

{files}

## Data

{dataset}, whose SHA-256 begins with {data_sha}, and {extra};
{held_out}. The checkpoint
is `{checkpoint}` of step {step}, after {epoch:.4g} of {num_epochs} epochs.

## Method

{method}

## Accuracy

{accuracy}

{checks}

## How to load it

{loading}

## Made with

{made_with}

## The complete config

```json
{config}
```
"""
IN_JAX = """In JAX:

```python
{imports}from cat_jax import weights

loaded = weights.load("{file}")
logits = loaded.logits_fn(images)
```

To attack it: `python -m cat_jax.main --mode=evaluate --config=CONFIG --workdir=FOLDER
{flags}--weights={file}`.

"""
IN_FLAX = (
    "The network is not published in PyTorch; its entries have the names and the layout of Flax."
)
LOADING = {
    "safetensors": "In PyTorch: `model.load_state_dict(safetensors.torch.load_file({file!r}))`.",
    "torch": "In PyTorch: `model.load_state_dict(torch.load({file!r})['state_dict'])`; the mask\n"
    "network's, where there is one, is `['state_dict_mask']`.",
}


def card(
    run: Trained,
    form: str,
    sums: Mapping[pathlib.Path, str],
    results: Sequence[Line],
    checks: Sequence[Line],
) -> str:
    """The text of the card.

    Args:
      run: the exported checkpoint.
      form: format of the files, a key of `weight_files.SUFFIXES`.
      sums: SHA-256 of each file.
      results: lines of results.jsonl; the card shows those of these weights.
      checks: lines of checks.jsonl; the card shows those of these weights.
    """
    config, network = run.config, run.classifier.network
    in_pytorch = named(config.classifier.name).state_dict is not None
    mean = getattr(network, "mean", ())
    results, checks = (_of_weights(run, records) for records in (results, checks))
    num_params = sum(leaf.size for leaf in jax.tree.leaves(run.classifier.variables["params"]))
    first = next(iter(sums)).name
    return TEMPLATE.format(
        title=f"{config.dataset}, {config.variant or config.method.name}",
        network=weights.describe(network),
        in_pytorch=", in PyTorch [B, C, H, W]" if in_pytorch else "",
        num_params=num_params,
        normalised=f"mean {list(mean)} and std {list(network.std)} are applied inside"
        + (" in JAX, and before the network in PyTorch" if in_pytorch else "")
        if mean
        else "they are not normalised",
        files="\n".join(f"    {digest}  {path.name}" for path, digest in sums.items()),
        dataset=config.dataset,
        data_sha=results[0]["attacked"]["data_sha"] if results else "unknown",
        extra=labels.extra_data(config) or "no additional data",
        held_out=_held_out(run),
        checkpoint=run.checkpoint,
        step=run.step,
        epoch=run.epoch,
        num_epochs=config.num_epochs,
        method=_method(run),
        accuracy=_accuracy(results),
        checks=_failed(checks),
        loading=(IN_JAX + (LOADING[form] if in_pytorch else IN_FLAX)).format(
            file=first,
            imports="".join(f"import {name}\n" for name in config.plugins),
            flags="".join(f"--plugin={name} " for name in config.plugins),
        ),
        made_with=_made_with(results, settings.fingerprint(config)),
        config=json.dumps(settings.as_dict(config), indent=1, allow_nan=False),
    )


def _held_out(run: Trained) -> str:
    number, chosen_on = run.config.num_validation, settings.selection(run.config)
    images = f"{number} training images were held out" if number else "nothing was held out"
    best = "is `last`" if chosen_on == "none" else f"was chosen on the {chosen_on} split"
    return f"{images}, and `best` {best}"


def accuracies(run: Trained, results: Sequence[Line]) -> list[dict[str, Any]]:
    """Accuracy, attack, threat and number of images of each result of the exported weights."""
    kept = ("attack", "norm", "epsilon", "clipped", "step_size", "num_examples", "subset")
    return [
        {name: line["conditions"][name] for name in kept if name in line["conditions"]}
        | {"accuracy": line["outcome"]["accuracy"]}
        for line in _of_weights(run, results)
        if lines.is_in_tables(line)
    ]


def _of_weights(run: Trained, records: Sequence[Line]) -> list[Line]:
    """The lines on the exported weights."""
    exported = (run.checkpoint, weights.fingerprint(run.classifier.variables))
    return [
        line
        for line in records
        if (line["attacked"]["checkpoint"], line["attacked"]["weights"]) == exported
    ]


def _method(run: Trained) -> str:
    """The method, its training and their arguments, a line each."""
    config = run.config
    attack, method = config.attack, config.method
    clipped = "within" if attack.clip else "not kept within"
    facts = {
        "method": f"{method.name}, variant {config.variant}",
        "conventions": f"{config.conventions}, where the paper and its code differ",
        "trained under": f"{attack.loss}, radius {radius_text(attack.epsilon)}, "
        f"{attack.num_steps} steps of {radius_text(attack.step_size)}, {clipped} [0, 1]",
        "length": f"{config.num_epochs} epochs, batches of {config.batch_size}, seed {config.seed}",
    }
    if fields := method_record(method.name).fields:
        facts["its arguments"] = ", ".join(f"{field} {method[field]}" for field in fields)
    if config.mask_net.name != "OnesMask":
        facts["mask network"] = f"{config.mask_net.name}, which sees the {config.mask_net.sees}"
    if config.num_steps:
        facts["length"] += f", stopped after {config.num_steps} steps"
    return "\n".join(f"- {name}: {text}" for name, text in facts.items())


def _accuracy(results: Sequence[Line]) -> str:
    """A row for each result, with the threat model and the strength of its attack."""
    results = [line for line in results if lines.is_in_tables(line)]
    if not results:
        return "Not evaluated yet: `python -m cat_jax.main --mode=evaluate --workdir=...`."
    head = "In percent, on the test split, with the 95% Wilson interval.\n\n"
    head += "| attack | radius | strength | accuracy | interval | images |\n"
    return head + "|---|---|---|---:|---:|---:|\n" + "\n".join(map(_row, results))


def _row(line: Line) -> str:
    conditions, outcome = line["conditions"], line["outcome"]
    low, high = outcome["interval"]
    cells = [
        conditions["attack"],
        labels.threat(conditions),
        labels.settings(conditions),
        f"{100 * outcome['accuracy']:.1f}",
        f"{100 * low:.1f} to {100 * high:.1f}",
        labels.images(conditions),
    ]
    return f"| {' | '.join(cells)} |"


def _failed(checks: Sequence[Line]) -> str:
    failed = [
        f"- {labels.check(check)}: {check['outcome']['text']}"
        for check in checks
        if not check["outcome"]["passed"]
    ]
    if failed:
        return "Checks against false robustness that failed:\n\n" + "\n".join(failed)
    return f"Checks against false robustness: {len(checks)}, none failed." if checks else ""


def _made_with(results: Sequence[Line], config_sha: str) -> str:
    """Versions, commit, device and date of the evaluation; without one, those of the export."""
    origin = results[-1]["outcome"] if results else provenance.measurement("unknown")
    return "\n".join(
        [
            *(f"- {name} {version}" for name, version in origin["versions"].items()),
            f"- commit {origin['git_sha'] or 'unknown'}",
            f"- config {config_sha}",
            *([f"- evaluated on {origin['device']}, {origin['date']}"] if results else []),
        ]
    )
