"""Attacks in balls of each norm: ours and published ones on the same weights.

    python benchmarks/norms.py --out=norms.json
    python benchmarks/norms.py --balls=l2:0.7,l1:5 --attacks=apgd_t,fab_t

Two small networks on MNIST, one of them trained on noisy images, are attacked by both
implementations, each on all images, from its own noise: APGD, APGD-T, FAB-T, Square and targeted
Square of pyautoattack, which is AutoAttack as a package, PGD of foolbox, also targeted, and with
the margin of adv-lib as its loss, targeted APGD of adv-lib. Needs MNIST, the extra `bench`,
pyautoattack and adv-lib.
"""

import argparse
import functools
import time
from typing import Any

import eagerpy
import foolbox
import jax
import jax.numpy as jnp
import numpy as np
import optax
import timing
import torch
from adv_lib.attacks import auto_pgd
from adv_lib.utils.losses import difference_of_logits
from jax.tree_util import Partial
from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted
from pyautoattack.fab_pt import FABAttack_PT
from pyautoattack.square import SquareAttack

from cat_jax import attacks, data

NUM_IMAGES, NUM_STEPS, NUM_QUERIES, HIDDEN = 200, 50, 1000, 100
NUM_TRAINED = 4000
BALLS = "l2:1.0,l1:8.0"
ORDERS = {"linf": np.inf, "l2": 2, "l1": 1}
TARGETED = ("pgd_least_likely", "apgd_least_likely", "square_least_likely")
NAMES = ("pgd", "apgd", "apgd_t", "fab_t", "square", *TARGETED)
NOISE = (0.0, 0.3)  # Standard deviation of the noise on the images that a network is trained on.
SLACK = 1e-4  # Of the ball, for rounding in float32.
Params = list[tuple[jax.Array, jax.Array]]


def main() -> None:
    """Prints a table, and writes it as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=timing.output_file, help="file for the results as JSON")
    parser.add_argument("--num_images", type=int, default=NUM_IMAGES)
    parser.add_argument(
        "--attacks", default=",".join(NAMES), help="names; cw_linf_least_likely is in linf only"
    )
    parser.add_argument("--balls", default=BALLS, help="NORM:RADIUS, separated by commas")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each attack, averaged")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        compare(name, noise, ball, options.num_images, options.seeds)
        for noise in NOISE
        for ball in options.balls.split(",")
        for name in options.attacks.split(",")
    ]
    timing.write(options.out, {"rows": rows, "seeds": options.seeds})


def compare(name: str, noise: float, ball: str, num_images: int, seeds: int) -> dict[str, Any]:
    """Accuracies under both implementations, or shares of images that reach their targets."""
    norm, _, radius = ball.partition(":")
    epsilon = float(radius)
    params, images, labels = setting(noise, num_images)
    classifier = Partial(logits, params)
    scores = np.asarray(classifier(images))
    true = np.arange(10) == labels[:, None]
    targets = np.where(true, np.inf, scores).argmin(-1).astype(np.int32)
    row: dict[str, Any] = dict(noise=noise, norm=norm, epsilon=epsilon, attack=name)
    row["natural"] = float((scores.argmax(-1) == labels).mean())
    for library, attack, target in (
        ("ours", ours, classifier),
        ("published", published, as_torch(params)),
    ):
        rates = []
        begin = time.perf_counter()
        for seed in range(seeds):
            adversarial = attack(name, target, images, labels, targets, norm, epsilon, seed)
            delta = (adversarial - images).reshape(num_images, -1)
            size = np.linalg.norm(delta, ORDERS[norm], axis=-1)
            row[f"{library}_radius"] = float(size.max())
            is_within = (size <= epsilon + SLACK) & (adversarial >= 0).all((1, 2, 3))
            is_within &= (adversarial <= 1).all((1, 2, 3))
            assert library == "published" or is_within.all(), (row, size.max())
            predicted = np.asarray(classifier(adversarial).argmax(-1))
            is_targeted = name.endswith("least_likely")
            rates.append(float((predicted == (targets if is_targeted else labels)).mean()))
        row[f"{library}_seconds"] = (time.perf_counter() - begin) / seeds
        row[library], row[f"{library}_runs"] = float(np.mean(rates)), rates
    print(
        "noise {noise} natural {natural:.3f} {norm} {epsilon} {attack:19} ours {ours:.4f} "
        "({ours_seconds:.1f} s) published {published:.4f} ({published_seconds:.1f} s)".format(
            **row
        ),
        flush=True,
    )
    return row


def ours(
    name: str,
    classifier: Partial,
    images: np.ndarray,
    labels: np.ndarray,
    targets: np.ndarray,
    norm: str,
    epsilon: float,
    seed: int,
) -> np.ndarray:
    """The images of `cat_jax.attacks`."""
    steps: dict[str, Any] = dict(num_steps=NUM_STEPS)
    pgd: dict[str, Any] = dict(step_size=epsilon / 10, random_start=False, **steps)
    attack = {
        "pgd": functools.partial(attacks.pgd, **pgd),
        "pgd_least_likely": functools.partial(attacks.pgd, **pgd),
        "cw_linf_least_likely": functools.partial(attacks.cw_linf, **pgd),
        "apgd": functools.partial(attacks.apgd, **steps),
        "apgd_t": functools.partial(attacks.apgd_t, **steps),
        "fab_t": functools.partial(attacks.fab_t, **steps),
        "square": functools.partial(attacks.square, num_queries=NUM_QUERIES),
        "apgd_least_likely": functools.partial(attacks.apgd, **steps),
        "square_least_likely": functools.partial(attacks.square, num_queries=NUM_QUERIES),
    }[name]
    if name.endswith("least_likely"):
        attack = functools.partial(attack, targets=targets)
    key = jax.random.key(seed)
    return np.asarray(attack(classifier, images, labels, key, epsilon=epsilon, norm=norm))


def published(
    name: str,
    network: Any,
    images: np.ndarray,
    labels: np.ndarray,
    targets: np.ndarray,
    norm: str,
    epsilon: float,
    seed: int,
) -> np.ndarray:
    """The images of the other libraries."""
    shared: dict[str, Any] = dict(norm=norm.capitalize(), eps=epsilon, seed=seed, verbose=False)
    steps = shared | dict(n_iter=NUM_STEPS, n_restarts=1, device="cpu")
    multiple = dict(use_largereps=norm == "l1")
    hyper: dict[str, Any]
    x = torch.tensor(np.moveaxis(images, -1, 1).copy())
    y, t = (torch.tensor(classes, dtype=torch.long) for classes in (labels, targets))
    if name == "pgd":
        criterion = foolbox.criteria.Misclassification(y)
        adversarial = of_foolbox(network, x, criterion, norm, epsilon)
    elif name == "pgd_least_likely":
        criterion = foolbox.criteria.TargetedMisclassification(t)
        adversarial = of_foolbox(network, x, criterion, norm, epsilon)
    elif name == "cw_linf_least_likely":
        criterion = foolbox.criteria.TargetedMisclassification(t)
        adversarial = of_foolbox(network, x, criterion, "margin", epsilon)
    elif name == "apgd":
        adversarial = APGDAttack(network, loss="ce", **steps, **multiple).perturb(x, y)
    elif name == "apgd_t":
        adversarial = APGDAttack_targeted(network, **steps, **multiple).perturb(x, y)
    elif name == "fab_t":
        fab = FABAttack_PT(network, targeted=True, n_target_classes=9, **steps)
        adversarial = fab.perturb(x, y)
    elif name == "apgd_least_likely":
        torch.manual_seed(seed)
        hyper = dict(targeted=True, n_iter=NUM_STEPS, loss_function="ce")
        hyper["use_large_reps"] = norm == "l1"
        adversarial = auto_pgd.apgd(as_module(network), x, t, epsilon, ORDERS[norm], **hyper)
    else:
        hyper = dict(n_queries=NUM_QUERIES, device="cpu", resc_schedule=False)
        hyper["targeted"] = name == "square_least_likely"
        square = SquareAttack(network, p_init=0.8, **hyper, **shared)
        adversarial = square.perturb(x, t if hyper["targeted"] else y)
    return np.moveaxis(adversarial.detach().numpy(), 1, -1)


class MarginPGD(foolbox.attacks.LinfPGD):  # type: ignore[misc]
    """PGD of foolbox on the margin of the target over the other classes."""

    def get_loss_fn(self, model: Any, labels: Any) -> Any:
        """The negative margin of images, which a targeted attack minimises."""

        def loss(images: Any) -> Any:
            logits = model(images).raw
            return eagerpy.astensor(-difference_of_logits(logits, labels.raw).sum())

        return loss


def of_foolbox(network: Any, x: Any, criterion: Any, kind: str, epsilon: float) -> Any:
    """PGD of foolbox, from the natural images, with steps of a tenth of the radius."""
    constructor = {
        "margin": MarginPGD,
        "linf": foolbox.attacks.LinfPGD,
        "l2": foolbox.attacks.L2PGD,
        "l1": foolbox.attacks.SparseL1DescentAttack,
    }[kind]
    attack = constructor(rel_stepsize=0.1, steps=NUM_STEPS, random_start=False)
    model = foolbox.PyTorchModel(as_module(network), bounds=(0, 1), device="cpu")
    return attack.run(model, x, criterion, epsilon=epsilon)


def as_module(network: Any) -> Any:
    """The network as a module in inference mode."""

    class Module(torch.nn.Module):
        def forward(self, images: Any) -> Any:
            return network(images)

    return Module().eval()


@functools.cache
def setting(noise: float, num_images: int) -> tuple[Params, np.ndarray, np.ndarray]:
    """A trained network, and test images [N, 28, 28, 1] in [0, 1] with their labels."""
    mnist = data.load("mnist")
    split = mnist.test.take(np.arange(num_images))
    training = mnist.train.take(np.arange(NUM_TRAINED))
    params = trained(to_unit(training.images), training.labels, noise, 0)
    return params, to_unit(split.images), np.asarray(split.labels, np.int32)


def to_unit(images: np.ndarray) -> np.ndarray:
    """8-bit images as float32 in [0, 1]."""
    return np.asarray(images, np.float32) / 255


def logits(params: Params, images: jax.Array) -> jax.Array:
    """A network of two layers."""
    (first, first_bias), (last, last_bias) = params
    hidden = jax.nn.relu(images.reshape(len(images), -1) @ first + first_bias[None])
    return hidden @ last + last_bias[None]


def trained(images: np.ndarray, labels: np.ndarray, noise: float, seed: int) -> Params:
    """Parameters after 600 steps of Adam on noisy images."""
    keys = jax.random.split(jax.random.key(seed), 3)
    sizes = (images[0].size, HIDDEN, 10)
    shapes = zip(keys[:2], sizes[:-1], sizes[1:], strict=True)
    params = [(jax.random.normal(k, (i, o)) / i**0.5, jnp.zeros(o)) for k, i, o in shapes]
    adam = optax.adam(3e-3)

    def step(number: jax.Array, carry: Any) -> Any:
        params, state = carry
        draw = jax.random.normal(jax.random.fold_in(keys[2], number), images.shape)

        def loss(params: Params) -> jax.Array:
            values = optax.softmax_cross_entropy_with_integer_labels(
                logits(params, images + noise * draw), labels
            )
            return jnp.mean(values)

        updates, state = adam.update(jax.grad(loss)(params), state)
        return optax.apply_updates(params, updates), state

    params, _ = jax.jit(lambda carry: jax.lax.fori_loop(0, 600, step, carry))(
        (params, adam.init(params))
    )
    return params


def as_torch(params: Params) -> Any:
    """The same network in PyTorch, on images [B, C, H, W] of one channel."""
    tensors = [tuple(torch.tensor(np.asarray(a)) for a in layer) for layer in params]

    def network(images: Any) -> Any:
        hidden = torch.relu(images.flatten(1) @ tensors[0][0] + tensors[0][1])
        return hidden @ tensors[1][0] + tensors[1][1]

    return network


if __name__ == "__main__":
    main()
