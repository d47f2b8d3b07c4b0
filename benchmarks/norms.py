"""Attacks in L2 and L1 balls: ours and published ones on the same weights.

    python benchmarks/norms.py --out=norms.json

Two small networks on MNIST, one of them trained on noisy images, are attacked by both
implementations, each on all images, from its own noise: APGD, APGD-T, FAB-T, Square and targeted
Square of pyautoattack, which is AutoAttack as a package, PGD of foolbox, targeted APGD of adv-lib.
Needs MNIST, the extra `bench`, pyautoattack and adv-lib.
"""

import argparse
import functools
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import timing
import torch
from jax.tree_util import Partial
from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted
from pyautoattack.fab_pt import FABAttack_PT
from pyautoattack.square import SquareAttack
from sklearn import datasets

from cat_jax import attacks

NUM_IMAGES, NUM_STEPS, NUM_QUERIES, HIDDEN = 300, 100, 1000, 100
RADII = {"l2": 0.6, "l1": 2.0}  # Where both networks keep between 20 and 80 percent.
NAMES = ("apgd", "apgd_t", "fab_t", "square")
NOISE = (0.0, 0.3)  # Of the images that a network is trained on.
SLACK = 1e-4  # By which float32 may leave the ball.
Params = list[tuple[jax.Array, jax.Array]]


def main() -> None:
    """Prints a table, and writes JSON if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, help="file for the results as JSON")
    parser.add_argument("--num_images", type=int, default=NUM_IMAGES)
    parser.add_argument("--attacks", default=",".join(NAMES), help="names, separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        compare(name, noise, norm, epsilon, options.num_images, options.seed)
        for noise in NOISE
        for norm, epsilon in RADII.items()
        for name in options.attacks.split(",")
    ]
    timing.write(options.out, {"rows": rows, "seed": options.seed})


def compare(
    name: str, noise: float, norm: str, epsilon: float, num_images: int, seed: int
) -> dict[str, Any]:
    """Accuracies under an attack of both libraries, on all images."""
    images, labels = digits()
    params = trained(images[num_images:], labels[num_images:], noise, seed)
    images, labels = images[:num_images], labels[:num_images]
    classifier = Partial(logits, params)
    row: dict[str, Any] = dict(noise=noise, norm=norm, epsilon=epsilon, attack=name)
    for library, attack, target in (
        ("ours", ours, classifier),
        ("published", published, as_torch(params)),
    ):
        begin = time.perf_counter()
        adversarial = attack(name, target, images, labels, norm, epsilon, seed)
        row[f"{library}_seconds"] = time.perf_counter() - begin
        order = {"l2": 2, "l1": 1}[norm]
        size = np.linalg.norm((adversarial - images).reshape(num_images, -1), order, axis=-1)
        is_within = (size <= epsilon + SLACK) & (adversarial >= 0).all((1, 2, 3))
        assert (is_within & (adversarial <= 1).all((1, 2, 3))).all(), row
        right = np.asarray(classifier(adversarial).argmax(-1)) == labels
        row[library] = float(right.mean())
    print(
        "noise {noise} {norm} {epsilon} {attack:7} ours {ours:.3f} ({ours_seconds:.1f} s) "
        "published {published:.3f} ({published_seconds:.1f} s)".format(**row),
        flush=True,
    )
    return row


def ours(
    name: str,
    classifier: Partial,
    images: np.ndarray,
    labels: np.ndarray,
    norm: str,
    epsilon: float,
    seed: int,
) -> np.ndarray:
    """The images of `cat_jax.attacks`."""
    steps: dict[str, Any] = dict(num_steps=NUM_STEPS)
    attack = {
        "apgd": functools.partial(attacks.apgd, **steps),
        "apgd_t": functools.partial(attacks.apgd_t, **steps),
        "fab_t": functools.partial(attacks.fab_t, **steps),
        "square": functools.partial(attacks.square, num_queries=NUM_QUERIES),
    }[name]
    key = jax.random.key(seed)
    return np.asarray(attack(classifier, images, labels, key, epsilon=epsilon, norm=norm))


def published(
    name: str,
    network: Any,
    images: np.ndarray,
    labels: np.ndarray,
    norm: str,
    epsilon: float,
    seed: int,
) -> np.ndarray:
    """The images of AutoAttack."""
    shared: dict[str, Any] = dict(norm=norm.upper(), eps=epsilon, seed=seed, verbose=False)
    steps = shared | dict(n_iter=NUM_STEPS, n_restarts=1, device="cpu")
    multiple = dict(use_largereps=norm == "l1")
    x = torch.tensor(np.moveaxis(images, -1, 1).copy())
    y = torch.tensor(labels, dtype=torch.long)
    if name == "apgd":
        adversarial = APGDAttack(network, loss="ce", **steps, **multiple).perturb(x, y)
    elif name == "apgd_t":
        adversarial = APGDAttack_targeted(network, **steps, **multiple).perturb(x, y)
    elif name == "fab_t":
        fab = FABAttack_PT(network, targeted=True, n_target_classes=9, **steps)
        adversarial = fab.perturb(x, y)
    else:
        square = SquareAttack(
            network, p_init=0.8, n_queries=NUM_QUERIES, device="cpu", resc_schedule=False, **shared
        )
        adversarial = square.perturb(x, y)
    return np.moveaxis(adversarial.detach().numpy(), 1, -1)


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images [N, 8, 8, 1] in [0, 1] and labels, in a fixed order."""
    bunch: Any = datasets.load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    images = (bunch.images[..., None] / 16).astype(np.float32)
    return images[order], bunch.target[order].astype(np.int32)


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
