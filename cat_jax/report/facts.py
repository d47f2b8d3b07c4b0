"""The facts at the top of a run's page: threat model, network, training, time, hardware."""

from collections.abc import Mapping, Sequence
from typing import Any

from cat_jax.experiment import labels
from cat_jax.report import per_class, tables
from cat_jax.runtime.terminal import duration
from cat_jax.storage.lines import Line

Config = Mapping[str, Any]
Records = Sequence[Mapping[str, Any]]


def facts(config: Config, run: Mapping[str, Records], *, is_trained: bool) -> dict[str, str]:
    """The facts by their names.

    Args:
      config: content of config.json.
      run: lines of the run's files, by name.
      is_trained: False if the workdir only evaluates weights from elsewhere.
    """
    results = run["results"]
    parts = {
        "Threat model": _threat(config, is_trained=is_trained),
        "Data": str(config["dataset"]),
        "Network": config["classifier"]["name"],
    }
    if is_trained:
        parts["Data"] += f"; {extra}" if (extra := labels.extra_data(config)) else ""
        parts["Network"] += _mask_network(config)
        parts |= {
            "Method": f"{config['variant']}, {config['conventions']} conventions, seed "
            f"{config['seed']}",
            "Training": _training(config, run["metrics"], has_ended=bool(results)),
            "Checkpoints": _checkpoints(results),
        }
    parts |= {"Time": _time(config, run), "Hardware": _hardware(results)}
    return {name: text for name, text in parts.items() if text}


def headlines(results: Sequence[Line]) -> list[tuple[str, str, str]]:
    """(number, name, interval) of natural accuracy and of the lowest accuracy under attack."""
    pair = per_class.strongest(results)
    if pair is None:
        return []
    natural, attack = pair
    names = [
        "natural accuracy",
        f"under {labels.attack(attack['conditions'])}, the strongest attack",
    ]
    return [
        (f"{100 * line['outcome']['accuracy']:.1f}%", name, _interval(line))
        for name, line in zip(names, (natural, attack), strict=True)
    ]


def _interval(line: Line) -> str:
    low, high = (100 * bound for bound in line["outcome"]["interval"])
    return f"95% interval {low:.1f} to {high:.1f}, {labels.images(line['conditions'], 'images')}"


def _threat(config: Config, *, is_trained: bool) -> str:
    attack, test = config["attack"], config["test"]
    text = f"{labels.NORMS[test['norm']]}, "
    if is_trained and config["method"]["name"] != "standard":
        norm = "" if attack["norm"] == test["norm"] else f"{labels.NORMS[attack['norm']]} "
        text += f"training radius {norm}{labels.radius(attack['epsilon'])}, "
    return f"{text}test radius {labels.radius(test['epsilon'])}; images in [0, 1]"


def _mask_network(config: Config) -> str:
    name = config["mask_net"]["name"]
    return "" if name == "OnesMask" else f", mask network {name}"


def _training(config: Config, metrics: Records, *, has_ended: bool) -> str:
    step = max((line["step"] for line in metrics), default=0)
    epoch = max((line.get("epoch", 0.0) for line in metrics), default=0.0)
    text = f"{step} steps of {config['batch_size']} images ({epoch:.3g} epochs)"
    return text if has_ended else f"{text} so far"


def _checkpoints(results: Sequence[Line]) -> str:
    """Such as "best at step 560, last at step 607", or "best = last at step 607"."""
    steps: dict[str, int] = {}
    for name, line in zip(labels.all_weights(results), results, strict=True):
        if line["attacked"]["file"] is None:
            steps[name] = line["attacked"]["step"]
    selection = next((line["attacked"]["selection"] for line in results), "none")
    chosen = tables.SELECTIONS.get(str(selection), str(selection))
    text = ", ".join(f"{name} at step {step}" for name, step in steps.items())
    return f"{text}; best is chosen on {chosen}" if text else ""


def _time(config: Config, run: Mapping[str, Records]) -> str:
    """The time of the training steps and of the attacks; validations and checks do not count."""
    training, before = 0.0, 0
    for line in run["metrics"]:
        if line.get("images_per_second"):
            images = (line["step"] - before) * config["batch_size"]
            training, before = training + images / line["images_per_second"], line["step"]
    attacks = {  # By record, because checkpoints with the same weights share them.
        (str(line["conditions"]), line["attacked"]["weights"]): line["outcome"]["seconds"]
        for line in run["results"]
    }
    texts = [f"training steps {duration(training)}"] if training else []
    texts += [f"attacks {duration(sum(attacks.values()))}"] if attacks else []
    return ", ".join(texts)


def _hardware(results: Sequence[Line]) -> str:
    """Such as "training on 4 devices, attacks on cpu"; runs do not record the kind of the first."""
    if not results:
        return ""
    numbers = [line["attacked"]["num_devices"] for line in results]
    number = next(filter(None, reversed(numbers)), 0)
    training = f"training on {number} device{'s' * (number > 1)}, " if number else ""
    kinds = dict.fromkeys(line["outcome"]["device"] for line in results)
    return f"{training}attacks on {' and '.join(kinds)}"
