"""A submission to RobustBench: weights, their PyTorch class, model info, issue and log.

RobustBench asks for these parts in the section "Adding a new model" of its README and in its
template of an issue, "New Model(s)".
"""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from cat_jax import __version__
from cat_jax.experiment import labels
from cat_jax.experiment.limits import radius_text
from cat_jax.storage import files
from cat_jax.storage.lines import Line
from cat_jax.storage.run_folder import RunFolder
from cat_jax.weights import weight_files
from cat_jax.weights.class_file import class_text, state_dict
from cat_jax.weights.loading import fingerprint
from cat_jax.weights.recognition import describe_short
from cat_jax.weights.trained import Trained

FORM = "robustbench"
NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1"}  # RobustBench's names.
CASCADE = ("natural", "apgd_ce", "apgd_t", "fab_t", "standard")
# The paper of CAT; a submission of another method leaves these fields empty.
PAPER = {
    "link": "https://arxiv.org/abs/2110.00623",
    "name": "Calibrated Adversarial Training",
    "authors": "Tianjin Huang, Vlado Menkovski, Yulong Pei, Mykola Pechenizkiy",
    "venue": "ACML 2021",
}
ISSUE = """# Paper Information

- **Paper Title**: {name}
- **Paper URL**: {link}

# Leaderboard Claim(s)

## Model 1

- **Architecture**: {architecture}
- **Threat Model**: {threat}, eps = {eps}
- **Clean accuracy**: {clean}
- **Robust accuracy**: {robust}
- **Evaluation method**: {evaluation}
- **Checkpoint and code**: {files} (upload them, and put their addresses here)

# Model Zoo:

- [ ] I want to add my models to the Model Zoo (check if true)
- [ ] I use an architecture that is **not** included in robustbench/model_zoo/architectures
- [ ] I agree to release my model(s) under MIT license (check if true) **OR**
- [ ] I want my models to be released under a custom license, located here:
"""
MISSING = "not evaluated: python -m cat_jax.main --mode=evaluate --config.evaluation=standard"


def write(run: Trained, workdir: pathlib.Path, stem: pathlib.Path) -> list[pathlib.Path]:
    """Writes the parts of a submission; those that need an evaluation say so if it is missing.

    Args:
      run: networks of the run, as `trained.load` returns them.
      workdir: folder of the run, whose results go into the parts.
      stem: path of the files, without suffixes.

    Returns:
      The weights, the class, the model info, the issue and the log.

    Raises:
      UsageError: for a network that has no class in PyTorch, or without PyTorch.
    """
    paths = [stem.with_name(f"{stem.name}{end}") for end in (".pt", ".py", ".json", ".md", ".log")]
    is_cat = run.config.method.name == "cat"
    code = class_text(run, paths[0].name, "Huang2021CalibratedNet" if is_cat else "Network")
    stem.parent.mkdir(parents=True, exist_ok=True)
    weight_files.save_torch(paths[0], state_dict(run.classifier, run.image_shape[-1]))
    cascade = _cascade(run, workdir)
    info = _info(run, cascade)
    texts = [code, json.dumps(info, indent=2, allow_nan=False) + "\n"]
    texts += [_issue(run, info, cascade, paths), _log(cascade)]
    for path, text in zip(paths[1:], texts, strict=True):
        files.write_text(path, text)
    return paths


def _cascade(run: Trained, workdir: pathlib.Path) -> dict[str, Line]:
    """The lines of natural accuracy and AutoAttack for these weights, in the ball of the tests.

    Of evaluations on several sets of images it takes the largest, complete ones first. It skips
    attacks that searched at a lower precision than AutoAttack.
    """
    test, digest = run.config.test, fingerprint(run.classifier.variables)
    ball = {"norm": test.norm, "epsilon": test.epsilon, "clipped": True}
    groups: dict[str, dict[str, Line]] = {}
    for line in RunFolder(workdir).read_lines("results"):
        attacked, conditions = line["attacked"], line["conditions"]
        name = conditions["attack"]
        is_own = (attacked["checkpoint"], attacked["weights"]) == (run.checkpoint, digest)
        in_ball = name == "natural" or ball.items() <= conditions.items()
        if is_own and in_ball and name in CASCADE and "search_precision" not in conditions:
            groups.setdefault(labels.images(conditions), {})[name] = line
    largest = max(groups.values(), key=_completeness, default={})
    return {name: largest[name] for name in CASCADE if name in largest}


def _completeness(group: Mapping[str, Line]) -> tuple[bool, int]:
    first = next(iter(group.values()))
    return "standard" in group, first["conditions"]["num_examples"]


def _info(run: Trained, cascade: Mapping[str, Line]) -> dict[str, Any]:
    """The content of model_info/DATASET/NORM/NAME.json; fields that only you know are empty."""
    paper = PAPER if run.config.method.name == "cat" else dict.fromkeys(PAPER, "")
    return {
        **{field: paper[field] for field in ("link", "name", "authors")},
        "additional_data": bool(run.config.extra_data.path),
        "number_forward_passes": 1,
        "dataset": run.config.dataset,
        "venue": paper["venue"],
        "architecture": _architecture(run),
        "eps": radius_text(run.config.test.epsilon),
        "clean_acc": _percent(cascade.get("natural")),
        "reported": "",
        "autoattack_acc": _percent(cascade.get("standard")),
    }


def _architecture(run: Trained) -> str:
    """RobustBench's spelling: "PreActResNet-18", "WideResNet-34-10"."""
    return describe_short(run.classifier.network).replace("ResNet18", "ResNet-18")


def _percent(line: Line | None) -> str:
    return f"{100 * line['outcome']['accuracy']:.2f}" if line else ""


def _issue(
    run: Trained,
    info: Mapping[str, Any],
    cascade: Mapping[str, Line],
    paths: Sequence[pathlib.Path],
) -> str:
    """The text of the issue "New Model(s)"."""
    return ISSUE.format(
        name=info["name"],
        link=info["link"],
        architecture=info["architecture"],
        threat=NORMS[run.config.test.norm],
        eps=info["eps"],
        clean=f"{info['clean_acc']}%" if info["clean_acc"] else MISSING,
        robust=f"{info['autoattack_acc']}%" if info["autoattack_acc"] else MISSING,
        evaluation=_version(cascade["standard"]) if "standard" in cascade else MISSING,
        files=", ".join(path.name for path in paths[:2]),
    )


def _version(line: Line) -> str:
    """The version string: "AutoAttack, standard version of cat_jax 0.1.0: ..., seed 0, ..."."""
    conditions, versions = line["conditions"], line["outcome"]["versions"]
    return (
        f"AutoAttack, standard version (APGD-CE, APGD-T, FAB-T, Square with "
        f"{conditions['num_queries']} queries) of cat_jax {versions.get('cat_jax', __version__)}, "
        f"seed {conditions['seed']}, {labels.images(conditions, 'test images')}"
    )


def _log(cascade: Mapping[str, Line]) -> str:
    """The log of the evaluation, a line for each attack, as AutoAttack prints it."""
    if "standard" not in cascade:
        return f"{MISSING}\n"
    last = cascade["standard"]
    attacked, outcome, threat = last["attacked"], last["outcome"], labels.threat(last["conditions"])
    texts = [
        _version(last),
        f"{threat}; weights {attacked['weights']}",
        f"data {attacked['dataset']}, SHA-256 {attacked['data_sha']}",
        f"commit {outcome['git_sha']}, {outcome['device']}, {outcome['date']}",
        ", ".join(f"{name} {version}" for name, version in outcome["versions"].items()),
    ]
    before = 0.0
    for name, line in cascade.items():
        accuracy, attack = line["outcome"]["accuracy"], name.upper().replace("_", "-")
        if name == "natural":
            texts.append(f"initial accuracy: {accuracy:.2%}")
        else:
            attack = "SQUARE" if name == "standard" else attack
            size, number = line["conditions"]["num_examples"], line["outcome"]["num_attacked"]
            fooled = round(size * (before - accuracy))
            texts.append(f"{attack}: {fooled} out of {number} successfully perturbed")
            seconds = line["outcome"]["seconds"]
            texts.append(f"robust accuracy after {attack}: {accuracy:.2%} ({seconds:.1f} s)")
        before = accuracy
    return "\n".join([*texts, f"robust accuracy: {before:.2%}", ""])
