"""Robust accuracy of one run under our cascade of AutoAttack's attacks, and under torchattacks'.

    python benchmarks/autoattack.py --workdir=runs/digits --out=autoattack.json

The run's classifier is made a PyTorch network of the same weights, which must classify all natural
images alike. Both libraries then attack the same images from their own noise: APGD on the cross-
entropy, APGD-T, FAB-T and Square, each on those that withstood the ones before. What either found
is shown to both networks. Needs the extra `bench`.

torchattacks' `AutoAttack` makes 10 steps where AutoAttack makes 100, and rescales Square's schedule
to its budget. Here its attacks get AutoAttack's settings; --as_shipped leaves them as they are.
"""

import argparse
import functools
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import timing
import torch
import torch_networks
import torchattacks
from jax.tree_util import Partial

from cat_jax import attacks, data
from cat_jax.errors import UsageError
from cat_jax.weights import trained

NUM_STEPS, NUM_QUERIES = 100, 5000  # AutoAttack's, and those of `attacks.standard`.
SLACK = 1e-6  # By which float32 may leave the ball.
TIE = 1e-3  # Two networks may differ over an image whose largest logits are so close.

# (images [B, H, W, C], labels [B], places [B] in the data set) -> images.
Attack = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
Logits = Callable[[np.ndarray], np.ndarray]


class Outcome(NamedTuple):
    """What a cascade left.

    Attributes:
      adversarial: float32 [N, H, W, C]; natural where nothing was found.
      stages: of each attack, how many examples it was run on, the accuracy it left, its seconds.
    """

    adversarial: np.ndarray
    stages: dict[str, dict[str, float]]


def main() -> None:
    """Runs both cascades, prints the comparison, and writes JSON if asked to."""
    options = parse()
    try:
        report = compare(options)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(summary(report))
    timing.write(options.out, report)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workdir", type=pathlib.Path, required=True, help="folder of the run")
    parser.add_argument("--checkpoint", default="last", choices=["best", "last"])
    parser.add_argument("--num_examples", type=int, default=1000, help="of the test split")
    parser.add_argument("--data_dir", help="where data sets are, if not where the run had them")
    parser.add_argument("--as_shipped", action="store_true", help="torchattacks' own settings")
    parser.add_argument("--out", type=timing.output_file, help="JSON file to write")
    return parser.parse_args()


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Both accuracies, how they differ, and what the evaluation was of.

    Raises:
      UsageError: if there is no such run, or its network has no PyTorch twin.
      RuntimeError: if the two networks differ, or an attack broke its rules.
    """
    run = trained.load(options.workdir, options.checkpoint)
    config, classifier, variables = run.config, run.classifier.network, run.classifier.variables
    dataset = data.load(config.dataset, options.data_dir or config.data_dir)
    epsilon = config.test.epsilon
    split = chosen(dataset.test, options.num_examples)
    images, labels = np.asarray(data.to_unit(split.images)), split.labels

    logits_fn = Partial(classifier.apply, variables)
    model = torch_networks.twin(classifier, variables, dataset.spec.image_shape)
    batch_size = config.test.batch_size
    networks = {
        "ours": functools.partial(in_batches, our_logits(logits_fn), batch_size),
        "theirs": functools.partial(in_batches, their_logits(model), batch_size),
    }
    natural = judge(networks, images, labels)
    if np.any(natural["ours"] != natural["theirs"]):
        raise RuntimeError("The PyTorch network classifies natural images otherwise than ours.")

    both = {
        "ours": our_attacks(logits_fn, epsilon),
        "theirs": their_attacks(model, epsilon, dataset.num_classes, options.as_shipped),
    }
    outcomes, flags = {}, {}
    for side, its_attacks in both.items():
        outcomes[side] = cascade(its_attacks, networks[side], images, labels, batch_size)
        check_rules(side, outcomes[side].adversarial, images, epsilon)
        flags[side] = judge(networks, outcomes[side].adversarial, labels)

    left = {side: flags[side][side] for side in both}
    return {
        "dataset": config.dataset,
        "classifier": config.classifier.name,
        "variant": config.variant,
        "checkpoint": options.checkpoint,
        "step": run.step,
        "epsilon": epsilon,
        "num_examples": len(labels),
        "as_shipped": options.as_shipped,
        "natural": float(natural["ours"].mean()),
        "accuracy": {side: float(left[side].mean()) for side in both},
        "difference_points": 100 * float(left["ours"].mean() - left["theirs"].mean()),
        "only_ours_fooled": int(np.sum(~left["ours"] & left["theirs"])),
        "only_theirs_fooled": int(np.sum(left["ours"] & ~left["theirs"])),
        "images_judged_otherwise": {
            side: int(np.sum(flags[side]["ours"] != flags[side]["theirs"])) for side in both
        },
        "stages": {side: outcomes[side].stages for side in both},
        **timing.machine("torch", "torchattacks"),
    }


def chosen(split: data.Split, num_examples: int) -> data.Split:
    """The examples that are attacked: as many of each class, or all if there are no more."""
    of_split = data.balanced(split.labels, min(num_examples, len(split.labels)), seed=0)
    return data.Split(split.images[of_split], split.labels[of_split])


def cascade(
    named: dict[str, Attack],
    logits: Logits,
    images: np.ndarray,
    labels: np.ndarray,
    batch_size: int,
) -> Outcome:
    """Each attack in turn, on the examples that `logits` still classifies right."""
    adversarial, stages = images.copy(), {}
    right = logits(images).argmax(-1) == labels
    for name, attack in named.items():
        survivors, started = np.flatnonzero(right), time.monotonic()
        num_batches = max(-(-len(survivors) // batch_size), 1)
        for places, count in data.padded_batches(len(survivors), -(-len(survivors) // num_batches)):
            batch = survivors[places]
            found = attack(images[batch], labels[batch], batch)
            adversarial[batch[:count]] = found[:count]
        right &= logits(adversarial).argmax(-1) == labels
        stages[name] = {
            "attacked": len(survivors),
            "accuracy": float(right.mean()),
            "seconds": round(time.monotonic() - started, 2),
        }
        print(name, stages[name], file=sys.stderr, flush=True)
    return Outcome(adversarial, stages)


def our_attacks(logits_fn: Partial, epsilon: float) -> dict[str, Attack]:
    """Our cascade. Noise belongs to (attack, place in the data set)."""

    def run(
        attack: Callable[..., jax.Array],
        key: jax.Array,
        images: np.ndarray,
        labels: np.ndarray,
        places: np.ndarray,
    ) -> np.ndarray:
        keys = jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.asarray(places))
        arguments = jnp.asarray(images), jnp.asarray(labels), keys
        with jax.default_matmul_precision("highest"):
            return np.asarray(attack(logits_fn, *arguments))

    return {
        name: functools.partial(run, attack, jax.random.key(number))
        for number, (name, attack) in enumerate(attacks.standard_attacks(epsilon=epsilon).items())
    }


def their_attacks(
    model: torch.nn.Module, epsilon: float, num_classes: int, as_shipped: bool
) -> dict[str, Attack]:
    """The four attacks of torchattacks' standard AutoAttack, or that itself."""
    ball: dict[str, Any] = dict(norm="Linf", eps=epsilon, seed=0)
    targets: dict[str, Any] = dict(steps=NUM_STEPS, n_classes=num_classes)
    if as_shipped:
        whole = torchattacks.AutoAttack(model, version="standard", n_classes=num_classes, **ball)
        made = {"autoattack": whole}
    else:
        made = {
            "apgd_ce": torchattacks.APGD(model, steps=NUM_STEPS, **ball),
            "apgd_t": torchattacks.APGDT(model, **targets, **ball),
            "fab_t": torchattacks.FAB(model, multi_targeted=True, **targets, **ball),
            "square": torchattacks.Square(
                model, n_queries=NUM_QUERIES, resc_schedule=False, **ball
            ),
        }

    def run(
        attack: Callable[..., torch.Tensor],
        images: np.ndarray,
        labels: np.ndarray,
        places: np.ndarray,
    ) -> np.ndarray:
        del places  # Noise belongs to the place in the batch.
        true = torch.tensor(labels).long()
        return torch_networks.to_numpy(attack(torch_networks.to_torch(images), true).detach())

    return {name: functools.partial(run, attack) for name, attack in made.items()}


def our_logits(logits_fn: Partial) -> Logits:
    """Images -> logits of our classifier, in NumPy."""
    compiled = jax.jit(logits_fn)

    def logits(images: np.ndarray) -> np.ndarray:
        with jax.default_matmul_precision("highest"):
            return np.asarray(compiled(images))

    return logits


def their_logits(model: torch.nn.Module) -> Logits:
    """Images -> logits of the PyTorch network, in NumPy."""

    def logits(images: np.ndarray) -> np.ndarray:
        return model(torch_networks.to_torch(images)).numpy()

    return logits


def in_batches(logits: Logits, batch_size: int, images: np.ndarray) -> np.ndarray:
    """The logits of any number of images, [N, K]."""
    batches = data.padded_batches(len(images), min(batch_size, len(images)))
    return np.concatenate([logits(images[places])[:count] for places, count in batches])


def judge(
    networks: dict[str, Logits], images: np.ndarray, labels: np.ndarray
) -> dict[str, np.ndarray]:
    """Is each network right about each image? Bool [N] each.

    Raises:
      RuntimeError: if the networks differ over an image that is no near tie.
    """
    logits = {side: of_network(images) for side, of_network in networks.items()}
    right = {side: of_side.argmax(-1) == labels for side, of_side in logits.items()}
    second, first = np.sort(logits["ours"], axis=-1)[:, -2:].T
    wide = (right["ours"] != right["theirs"]) & (first - second > TIE)
    if wide.any():
        raise RuntimeError(f"The networks differ over {wide.sum()} images that are no near ties.")
    return right


def check_rules(side: str, found: np.ndarray, images: np.ndarray, epsilon: float) -> None:
    """Raises RuntimeError if `found` leaves the ball or [0, 1]."""
    excess = float(np.abs(found - images).max()) - epsilon
    excess = max(excess, -float(found.min()), float(found.max()) - 1)
    if not excess <= SLACK:
        raise RuntimeError(f"{side}: images leave the ball or [0, 1] by {excess:.2e}.")


def summary(report: dict[str, Any]) -> str:
    """The comparison in Markdown."""
    lines = [
        f"{report['dataset']}, {report['classifier']} {report['variant']}, epsilon "
        f"{report['epsilon']:.4g}, {report['num_examples']} images, natural "
        f"{100 * report['natural']:.2f}",
        "",
        "| | attack | attacked | accuracy left | seconds |",
        "|---|---|---:|---:|---:|",
    ]
    for side, stages in report["stages"].items():
        lines += [
            f"| {side} | {name} | {stage['attacked']} | {100 * stage['accuracy']:.2f} "
            f"| {stage['seconds']:.1f} |"
            for name, stage in stages.items()
        ]
    otherwise = report["images_judged_otherwise"]
    return "\n".join(
        [
            *lines,
            "",
            f"Ours minus theirs: {report['difference_points']:+.2f} points. Fooled by ours alone: "
            f"{report['only_ours_fooled']}, by theirs alone: {report['only_theirs_fooled']}.",
            f"The two networks differ over {otherwise['ours']} of our images "
            f"and {otherwise['theirs']} of theirs.",
        ]
    )


if __name__ == "__main__":
    main()
