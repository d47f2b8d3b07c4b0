"""PGD-20 on one accelerator: ours beside torchattacks' under torch.compile, both in bfloat16.

    python benchmarks/pgd_on_gpu.py --out=pgd.json [--num_images=1024]

PreAct ResNet-18 with the same random weights for both and random 32x32 images. PyTorch computes in
channels_last under autocast to bfloat16, images and steps in float32; ours likewise. Labels are the
network's own predictions and the radius is so small that nothing is fooled.
"""

import argparse
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # PyTorch needs memory too.

import functools

import jax
import jax.numpy as jnp
import numpy as np
import timing
import torch
import torch_networks
from jax.tree_util import Partial

from cat_jax import attacks, networks

EPSILON, NUM_STEPS = 1e-6, 20
KEY = jax.random.key(0)


class Autocast(torch.nn.Module):
    """Computes `model` in bfloat16; images and logits are float32."""

    def __init__(self, model: torch.nn.Module, device: str) -> None:
        super().__init__()
        self.model, self.device = model, device

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W] -> [B, K]."""
        with torch.autocast(self.device, torch.bfloat16):
            logits: torch.Tensor = self.model(images)
        return logits.float()


def main() -> None:
    """Measures, prints a Markdown table, and writes JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--network", default="PreActResNet18")
    parser.add_argument("--num_images", type=int, default=1024, help="in the one batch")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each, in turn")
    parser.add_argument("--out", type=timing.output_file, help="JSON file to write")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"

    shape = (options.num_images, 32, 32, 3)
    images = np.random.default_rng(0).uniform(size=shape).astype(np.float32)
    classifier = getattr(networks, options.network)()
    variables = jax.jit(classifier.init)(KEY, images[:1])
    inside = classifier.clone(dtype=jnp.bfloat16)
    labels = jnp.argmax(jax.jit(inside.apply)(variables, images), axis=-1)
    x = jnp.asarray(images)

    model = torch_networks.twin(classifier, variables, images.shape[1:])
    model = model.to(device, memory_format=torch.channels_last)
    compiled = torch.compile(Autocast(model, device))
    theirs = torch_networks.to_torch(images).to(device, memory_format=torch.channels_last)
    true = torch.tensor(np.asarray(labels)).long().to(device)
    hyper = dict(epsilon=EPSILON, step_size=EPSILON / 4, num_steps=NUM_STEPS)
    ours = functools.partial(attacks.pgd, Partial(inside.apply, variables), x, labels, KEY, **hyper)
    name, attack = peer(compiled, theirs, true)

    def run() -> None:
        attack()
        if device == "cuda":
            torch.cuda.synchronize()

    work = "PGD-20, bfloat16"
    runs = {work: {timing.OURS: lambda: jax.block_until_ready(ours()), name: run}}
    seconds = timing.interleaved(runs, options.rounds)
    print(timing.table(seconds, {work: options.num_images}))
    report = {**timing.machine("torch", "torchattacks"), "device": device, "peer": name}
    report |= {"num_images": options.num_images, "seconds": seconds}
    timing.write(options.out, report)


def peer(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor):  # type: ignore[no-untyped-def]
    """(name, attack) of torchattacks; where it is not installed, of the same loop in few lines."""
    torchattacks = timing.installed("torchattacks")
    if torchattacks is not None:
        attack = torchattacks.PGD(model, EPSILON, alpha=EPSILON / 4, steps=NUM_STEPS)
        return "torchattacks", functools.partial(attack, x, y)

    def pgd() -> torch.Tensor:
        found = (x + torch.empty_like(x).uniform_(-EPSILON, EPSILON)).clamp(0, 1)
        for _ in range(NUM_STEPS):
            found.requires_grad_(True)
            loss = torch.nn.functional.cross_entropy(model(found), y)
            (grad,) = torch.autograd.grad(loss, found)
            moved = found.detach() + EPSILON / 4 * grad.sign()
            found = (x + (moved - x).clamp(-EPSILON, EPSILON)).clamp(0, 1)
        return found

    return "PyTorch's loop (torchattacks is not installed)", pgd


if __name__ == "__main__":
    main()
