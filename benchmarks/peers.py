"""Speed of training: PGD-10 and whole steps of CAT, beside PyTorch and foolbox in one run.

    python benchmarks/peers.py --out=peers.json

Random weights, the same for all, and random images, in float32 on the CPU. PyTorch's step is the
published one in our own words (`torch_step.py`), once as published; all other runs of PyTorch are
without the gradients of the weights that the published attack computes and drops. These run as
they are, with channels_last, compiled by torch.compile, and both: the fastest is named under the
table. PyTorch is not installed otherwise (extra `bench`); torch.compile needs a C++ compiler;
foolbox is left out where it is not installed. The cores have to be idle: where they are shared,
PyTorch's threads wait for one another.
"""

import argparse
import copy
import functools
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import attacks as attack_speeds
import jax
import jax.numpy as jnp
import numpy as np
import timing
import torch
import torch_networks
import torch_step
from jax.tree_util import Partial

from cat_jax import attacks, data, networks
from cat_jax.configs import mnist, preact_cifar10
from cat_jax.experiment import settings
from cat_jax.experiment.experiment import build_experiment
from cat_jax.runtime import processes
from cat_jax.step.state import variables_of

PUBLISHED = "PyTorch, as published"
# Name of a run of PyTorch -> (compiled, channels_last).
SETTINGS = {
    "PyTorch": (False, False),
    "PyTorch, channels_last": (False, True),
    "PyTorch, compiled": (True, False),
    "PyTorch, compiled, channels_last": (True, True),
}
FOOLBOX = "foolbox (JAX)"
PLAIN = "foolbox (JAX), convolutions as Flax has them"
KEY = jax.random.key(0)
Made = dict[str, Callable[[], Any]]


def main() -> None:
    """Measures, prints a Markdown table, and writes JSON if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, in turn")
    parser.add_argument("--work", action="append", choices=[*WORKS], help="default: all")
    parser.add_argument("--num_images", type=int, help="in the one batch; default: 32, MNIST 100")
    parser.add_argument(
        "--out", type=timing.output_file, help="JSON file to write: all times, versions, cores"
    )
    options = parser.parse_args()

    chosen = options.work or [*WORKS]
    sizes = {work: options.num_images or WORKS[work][0] for work in chosen}
    runs = {work: WORKS[work][1](size) for work, size in sizes.items()}
    seconds = timing.interleaved(runs, options.rounds)
    print(timing.table(seconds, sizes))
    print(*map(fastest_torch, seconds, seconds.values()), sep="\n")
    report = {**timing.machine("torch", "foolbox"), "threads": torch.get_num_threads()}
    report |= {"num_images": sizes, "rounds": options.rounds, "seconds": seconds}
    timing.write(options.out, report)


def fastest_torch(work: str, seconds: dict[str, list[float]]) -> str:
    """Names the fastest run of PyTorch, and states how many times its speed ours is."""
    medians = timing.medians_of(seconds)
    best = min(SETTINGS, key=medians.__getitem__)
    ratio = medians[best] / medians[timing.OURS]
    return f"{work}: the fastest is {best!r}; cat_jax is {ratio:.2f} times as fast."


def prepared(
    setting: tuple[bool, bool], images: torch.Tensor, *models: torch.nn.Module
) -> tuple[Any, ...]:
    """The images and copies of the models, in the layout and with the compiler of a setting."""
    compiled, channels_last = setting
    layout = torch.channels_last if channels_last else torch.contiguous_format
    copies = [copy.deepcopy(model).to(memory_format=layout) for model in models]
    if compiled:
        copies = [torch.compile(model) for model in copies]
    return images.to(memory_format=layout), *copies


def pgd(num_images: int, num_steps: int = 10) -> Made:
    """PGD on PreAct ResNet-18 in inference mode; the radius is so small that nothing is fooled."""
    epsilon = 1e-6
    images = np.random.default_rng(0).uniform(size=(num_images, 32, 32, 3)).astype(np.float32)
    classifier = networks.PreActResNet18()
    variables = jax.jit(classifier.init)(KEY, images)
    labels = jnp.argmax(jax.jit(classifier.apply)(variables, images), axis=-1)
    logits_fn = Partial(classifier.apply, variables)
    ours = functools.partial(
        attacks.pgd, epsilon=epsilon, step_size=epsilon / 4, num_steps=num_steps
    )
    model = torch_networks.twin(classifier, variables, images.shape[1:])
    x, y = torch_networks.to_torch(images), torch.tensor(np.asarray(labels)).long()
    recipe = torch_step.Recipe(
        *(epsilon, epsilon / 4, num_steps, None, True, 0.0, 0.0), weight_gradients=False
    )
    made: Made = {timing.OURS: lambda: np.asarray(ours(logits_fn, images, labels, KEY))}
    for name, setting in SETTINGS.items():
        batch, network = prepared(setting, x, model)
        made[name] = functools.partial(
            torch_step.attack, network, batch, y, torch.zeros_like(batch), recipe
        )
    if (foolbox := timing.installed("foolbox")) is None:
        print("foolbox is not installed and left out.", file=sys.stderr)
    else:
        problem = (foolbox, classifier, variables, jnp.asarray(images), labels, epsilon)
        made[FOOLBOX] = attack_speeds.foolbox_runs(*problem, num_steps)[f"PGD-{num_steps}"]
        plain = attack_speeds.foolbox_runs(*problem, num_steps)[f"PGD-{num_steps}"]
        made[PLAIN] = with_derived_gradients(plain)
    return made


def with_derived_gradients(run: Callable[[], Any]) -> Callable[[], Any]:
    """`run`, traced with the convolution that other Flax networks have: JAX's own."""

    def convolve(images: jax.Array, kernel: jax.Array, stride: int, padding: int) -> jax.Array:
        pads, order = ((padding, padding),) * 2, ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            images, kernel, (stride, stride), pads, dimension_numbers=order
        )

    def patched() -> Any:
        with mock.patch("cat_jax.networks.conv.convolve", convolve):
            return run()

    return patched


def cat(module: Any, spec: data.Spec, optimizer: Callable[..., Any], num_images: int) -> Made:
    """One step of CAT_cw, from the same weights on the same batch, again and again."""
    config = module.get_config("cat_cw")
    config.batch_size = num_images
    config.augment = "none"
    config = settings.resolve(config)
    experiment = build_experiment(config, spec, jax.local_devices()[:1])
    rng = np.random.default_rng(0)
    images = rng.uniform(size=(num_images, *spec.image_shape)).astype(np.float32)
    labels = rng.integers(spec.num_classes, size=num_images).astype(np.int32)
    state = experiment.begin()
    pairs = (experiment.classifier, state.classifier), (experiment.mask_net, state.mask_net)
    f, g = (
        torch_networks.twin(network, variables_of(net), spec.image_shape) for network, net in pairs
    )
    attack, start = config.attack, config.attack.start_radius
    published = torch_step.Recipe(
        *(attack.epsilon, attack.step_size, attack.num_steps, attack.kappa, attack.clip),
        *(config.method.beta, config.method.beta1),
    )
    x, y = torch_networks.to_torch(images), torch.tensor(labels).long()
    held = {"state": processes.replicate(state, jax.local_devices()[:1])}

    def ours() -> None:
        batch = {"image": images[None], "label": labels[None]}
        held["state"], metrics = experiment.step_fn(held["state"], batch, KEY)
        jax.block_until_ready((held["state"], metrics))

    def theirs(recipe: torch_step.Recipe, setting: tuple[bool, bool]) -> Callable[[], None]:
        batch, *networks_of_step = prepared(setting, x, f, g)
        step = torch_step.Step(*networks_of_step, optimizer, recipe)

        def run() -> None:
            step(batch, y, torch.empty_like(batch).uniform_(-start, start))

        return run

    sparing = published._replace(weight_gradients=False)
    made: Made = {timing.OURS: ours, PUBLISHED: theirs(published, SETTINGS["PyTorch"])}
    return made | {name: theirs(sparing, setting) for name, setting in SETTINGS.items()}


SGD = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=5e-4)
ADAM = functools.partial(torch.optim.Adam, lr=1e-3)
CIFAR, MNIST = data.Spec((32, 32, 3), 10, 50_000), data.Spec((28, 28, 1), 10, 60_000)
# work -> images in the one batch, and (that number) -> what does it.
WORKS: dict[str, tuple[int, Callable[[int], Made]]] = {
    "PGD-10, PreAct ResNet-18": (32, pgd),
    "CAT step, PreAct ResNet-18": (32, functools.partial(cat, preact_cifar10, CIFAR, SGD)),
    "CAT step, MNIST": (100, functools.partial(cat, mnist, MNIST, ADAM)),
}


if __name__ == "__main__":
    main()
