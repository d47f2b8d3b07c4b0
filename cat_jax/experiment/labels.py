"""Results in words: the attack with its radius, the attacked weights, the images."""

from collections.abc import Mapping, Sequence
from typing import Any

from cat_jax.experiment.limits import radius_text

Conditions = Mapping[str, Any]
NORMS = {"linf": "L-infinity", "l2": "L2", "l1": "L1"}
# Conditions that tables show beside their rows, and the seed, over which tables average.
NOT_COMPARED = ("num_examples", "subset", "seed")


def comparable(conditions: Conditions) -> dict[str, Any]:
    """The conditions of an attack without the choice of images and the seed of the noise."""
    return {name: value for name, value in conditions.items() if name not in NOT_COMPARED}


def extra_data(config: Mapping[str, Any]) -> str:
    """ "70% of each batch from 1m.npz (SHA-256 0123456789ab)"; "" without extra data.

    Args:
      config: a resolved config, as a ConfigDict or as in config.json.
    """
    extra = config["extra_data"]
    if not extra["path"]:
        return ""
    file = extra["path"].rpartition("/")[2]
    return f"{100 * extra['share']:g}% of each batch from {file} (SHA-256 {extra['fingerprint']})"


def radius(epsilon: float) -> str:
    """ "0.15", or "8/255" where the radius is a number of grey levels."""
    text = radius_text(epsilon)
    return text if len(text) <= 8 else f"{epsilon:.4g}"


def threat(conditions: Conditions) -> str:
    """ "L-infinity 8/255" or "L2 0.5, not clipped to [0, 1]"; "" for natural accuracy.

    For a union over several norms: "L-infinity 8/255 and L2 0.5".
    """
    if "epsilon" not in conditions:
        return ""
    if conditions["norm"] == "union":
        return " and ".join(dict.fromkeys(threat(part) for part in conditions["attacks"]))
    clipped = "" if conditions["clipped"] else ", not clipped to [0, 1]"
    return f"{NORMS[conditions['norm']]} {radius(conditions['epsilon'])}{clipped}"


def attack(conditions: Conditions) -> str:
    """ "pgd20 at 0.15"; "pgd20 at L2 0.5" where the norm is not L-infinity.

    For images that were found on other runs: "pgd20_transfer at 0.15 from digits_at".
    """
    if "kind" in conditions:
        return f"{conditions['kind']} of severity {conditions['severity']}"
    if "epsilon" not in conditions:
        return str(conditions["attack"])
    origin = f" from {source(conditions)}" if "source" in conditions else ""
    if conditions["norm"] == "union":
        ball = threat(conditions)
    else:
        norm = "" if conditions["norm"] == "linf" else f"{NORMS[conditions['norm']]} "
        ball = f"{norm}{radius(conditions['epsilon'])}"
    label = f"{conditions['attack']} at {ball}{origin}"
    lower = conditions.get("search_precision")
    return f"{label}, searched in {lower}" if lower else label


def source(conditions: Conditions) -> str:
    """The runs or files on which the images of a transfer attack were found: "a + b"."""
    return " + ".join(part["run"] for part in conditions["source"])


def source_weights(conditions: Conditions) -> str:
    """The first digits of the SHA-256 of the weights of each source: "12345678 + 9abcdef0"."""
    return " + ".join(part["weights"][:8] for part in conditions["source"])


def attacks(all_conditions: Sequence[Conditions]) -> list[str]:
    """A label for each of several conditions; equal labels get the conditions that differ."""
    comparables = [comparable(conditions) for conditions in all_conditions]
    labels = [attack(conditions) for conditions in comparables]
    alike: dict[str, list[Conditions]] = {}
    for conditions, label in zip(comparables, labels, strict=True):
        alike.setdefault(label, []).append(conditions)
    return [
        ", ".join([label, *_differences(conditions, alike[label])])
        for conditions, label in zip(comparables, labels, strict=True)
    ]


def _differences(conditions: Conditions, alike: Sequence[Conditions]) -> list[str]:
    """ "step_size 0.01" for each condition that is not equal in all of `alike`."""
    names = dict.fromkeys(name for others in alike for name in others)
    return [
        f"weights {source_weights(conditions)}"
        if name == "source"
        else f"{name} {conditions.get(name)}"
        for name in names
        if any(others.get(name) != conditions.get(name) for others in alike)
    ]


def settings(conditions: Conditions) -> str:
    """ "100 steps of 0.003, 5 random starts" or "5000 queries": the strength of an attack."""
    texts = []
    if steps := conditions.get("num_steps"):
        size = f" of {conditions['step_size']:.4g}" if "step_size" in conditions else ""
        texts.append(f"{steps} step{'s' * (steps > 1)}{size}")
    if queries := conditions.get("num_queries"):
        texts.append(f"{queries} queries")
    if conditions.get("restarts", 1) > 1:
        texts.append(f"{conditions['restarts']} random starts")
    elif conditions.get("random_start"):
        texts.append("a random start")
    if "kappa" in conditions:
        texts.append(f"kappa {conditions['kappa']:g}")
    return ", ".join(texts)


def balanced(seed: int) -> str:
    """The condition `subset` for images drawn evenly from the classes."""
    return f"balanced, seed {seed}"


def images(conditions: Conditions, noun: str = "") -> str:
    """ "10000", or "1000 (balanced, seed 0)" for a part of the test split.

    With a noun, "10000 images", or "1000 images (balanced, seed 0)".
    """
    subset = conditions["subset"]
    parts = (str(conditions["num_examples"]), noun, "" if subset == "all" else f"({subset})")
    return " ".join(filter(None, parts))


def weights(attacked: Mapping[str, Any]) -> str:
    """ "best", or "weights FILE (ResNet18)" for weights from a file."""
    if attacked["file"] is None:
        return str(attacked["checkpoint"])
    return f"weights {attacked['file']['name']} ({attacked['classifier']})"


def all_weights(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """`weights` of each line.

    Checkpoints with the same weights share a label such as "best = last". Files with the same name
    and different weights get digits of their SHA-256.
    """
    texts = [weights(line["attacked"]) for line in lines]
    digests: dict[str, set[str]] = {}
    checkpoints: dict[str, dict[str, None]] = {}  # The names of each digest, in their order.
    for text, line in zip(texts, lines, strict=True):
        digests.setdefault(text, set()).add(line["attacked"]["weights"])
        if line["attacked"]["file"] is None:
            checkpoints.setdefault(line["attacked"]["weights"], {})[text] = None
    return [
        " = ".join(checkpoints.get(line["attacked"]["weights"], {text: None}))
        if len(digests[text]) == 1
        else f"{text} {line['attacked']['weights'][:8]}"
        for text, line in zip(texts, lines, strict=True)
    ]


def check(line: Mapping[str, Any]) -> str:
    """ "best pgd_has_converged at 0.15"; without the radius if the compared attacks have several.

    On a part of the test split: "best pgd_has_converged at 0.15 on 1000 (balanced, seed 0)".
    """
    conditions = line["conditions"]
    radii = {label.partition(" at ")[2] for label in conditions.get("attacks", ())} - {""}
    if "epsilon" in conditions:
        radii = {radius(conditions["epsilon"])}
    at = f" at {radii.pop().partition(',')[0]}" if len(radii) == 1 else ""
    on = "" if conditions["subset"] == "all" else f" on {images(conditions)}"
    return f"{weights(line['attacked'])} {conditions['check']}{at}{on}"
