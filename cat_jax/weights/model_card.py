"""A model card: what exported weights are, in Markdown, beside them."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from cat_jax import weights
from cat_jax.experiment import settings
from cat_jax.experiment.limits import radius_text
from cat_jax.storage import provenance
from cat_jax.weights.trained import Trained

TEMPLATE = """# {title}

{network}, {num_params:,} parameters. Images are [B, H, W, C] in [0, 1], in PyTorch [B, C, H, W];
{normalised}. The outputs are logits.

## Files

{files}

## Data

{dataset}, whose SHA-256 begins with {data_sha}; {held_out}. The checkpoint is
`{checkpoint}` of step {step}.

## Method

{method}

## Accuracy

{accuracy}

{checks}

## How to load it

{loading}

## Made with

{made_with}

## The whole config

```json
{config}
```
"""
IN_JAX = """In JAX:

```python
from cat_jax import weights

loaded = weights.load("{file}")
logits = loaded.logits_fn(images)
```

To attack it: `python -m cat_jax.main --mode=evaluate --config=CONFIG --workdir=FOLDER
--weights={file}`.

"""
LOADING = {
    "safetensors": "In PyTorch: `model.load_state_dict(safetensors.torch.load_file({file!r}))`.",
    "torch": "In PyTorch: `model.load_state_dict(torch.load({file!r})['state_dict'])`; the mask\n"
    "network's, where there is one, is `['state_dict_mask']`.",
}


def card(
    run: Trained,
    form: str,
    written: Mapping[pathlib.Path, str],
    results: Sequence[Mapping[str, Any]],
    checks: Sequence[Mapping[str, Any]],
) -> str:
    """The card's text.

    Args:
      run: what was exported.
      form: the format, a key of `weight_files.SUFFIXES`.
      written: the files and their SHA-256.
      results: lines of results.jsonl; those of this checkpoint and step are shown.
      checks: lines of checks.jsonl, likewise.
    """
    config, network = run.config, run.classifier.network
    mean = getattr(network, "mean", ())
    results, checks = (
        [line for line in lines if (line["checkpoint"], line["step"]) == (run.checkpoint, run.step)]
        for lines in (results, checks)
    )
    num_params = sum(leaf.size for leaf in jax.tree.leaves(run.classifier.variables["params"]))
    first = next(iter(written)).name
    return TEMPLATE.format(
        title=f"{config.dataset}, {config.variant or config.method.name}",
        network=weights.describe(network),
        num_params=num_params,
        normalised=f"mean {list(mean)} and std {list(network.std)} are applied inside in JAX, and "
        "before the network in PyTorch"
        if mean
        else "they are not normalised",
        files="\n".join(f"    {digest}  {path.name}" for path, digest in written.items()),
        dataset=config.dataset,
        data_sha=results[0]["data_sha"] if results else "unknown",
        held_out=f"{config.num_validation} training images were held out, and `best` was chosen on "
        f"the {config.selection} split"
        if config.num_validation
        else "nothing was held out, and `best` is `last`",
        checkpoint=run.checkpoint,
        step=run.step,
        method=_method(config),
        accuracy=_accuracy(results, config.test),
        checks=_failed(checks),
        loading=(IN_JAX + LOADING[form]).format(file=first),
        made_with=_made_with(results, settings.fingerprint(config)),
        config=json.dumps(settings.as_dict(config), indent=1, allow_nan=False),
    )


def _method(config: Any) -> str:
    """What decides the training, a line each."""
    attack, method = config.attack, config.method
    clipped = "within" if attack.clip else "not kept within"
    lines = {
        "method": f"{method.name}, variant {config.variant}",
        "conventions": f"{config.conventions}, where the paper and its code differ",
        "trained under": f"{attack.loss}, radius {radius_text(attack.epsilon)}, "
        f"{attack.num_steps} steps of {radius_text(attack.step_size)}, {clipped} [0, 1]",
        "length": f"{config.num_epochs} epochs, batches of {config.batch_size}, seed {config.seed}",
    }
    if method.name == "cat":
        lines["beta, beta1"] = f"{method.beta}, {method.beta1}"
        lines["mask network"] = f"{config.mask_net.name}, which sees the {config.mask_net.sees}"
    if config.num_steps:
        lines["length"] += f", stopped after {config.num_steps} steps"
    return "\n".join(f"- {name}: {text}" for name, text in lines.items())


def _accuracy(results: Sequence[Mapping[str, Any]], test: Any) -> str:
    if not results:
        return "Not evaluated yet: `python -m cat_jax.main --mode=evaluate --workdir=...`."
    head = (
        "In percent, on the test split, with the 95% Wilson interval. L-infinity radius "
        f"{radius_text(test.epsilon)}, of C&W {radius_text(test.cw_epsilon)}.\n\n"
    )
    head += "| attack | accuracy | interval | images |\n|---|---:|---:|---:|\n"
    return head + "\n".join(
        f"| {line['attack']} | {100 * line['accuracy']:.1f} "
        f"| {100 * line['interval'][0]:.1f} to {100 * line['interval'][1]:.1f} "
        f"| {line['num_examples']} |"
        for line in results
    )


def _failed(checks: Sequence[Mapping[str, Any]]) -> str:
    failed = [f"- {check['name']}: {check['text']}" for check in checks if not check["passed"]]
    if failed:
        return "Checks against false robustness that failed:\n\n" + "\n".join(failed)
    return f"Checks against false robustness: {len(checks)}, none failed." if checks else ""


def _made_with(results: Sequence[Mapping[str, Any]], config_sha: str) -> str:
    """Of the evaluation, if there was one; else of this process."""
    versions = results[-1]["versions"] if results else provenance.versions()
    commit = results[-1]["git_sha"] if results else provenance.git_sha()
    lines = [f"- {name} {version}" for name, version in versions.items()]
    return "\n".join([*lines, f"- commit {commit or 'unknown'}", f"- config {config_sha}"])
