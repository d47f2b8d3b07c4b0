"""Speed of our attacks beside other libraries' with the same weights and the same work.

    python benchmarks/attacks.py --out=attacks.json

PreAct ResNet-18 with random weights on random 32x32 images, in float32, on the CPU. PGD makes 20
steps and the attacks of AutoAttack's cascade 10, towards one target where they are targeted. Beside
ours: foolbox on its JAX back end, which has PGD, FMN and DDN, and torchattacks on a network with
channels_last, PyTorch's faster layout; what is not installed is left out (extra `bench`).

Labels are the network's own predictions and the radius is so small that nothing is fooled, which
is checked: torchattacks leaves out examples as soon as they are, and would then do less work. The
cores have to be idle otherwise: where they are shared, PyTorch's threads wait for one another.
"""

import argparse
import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import timing
from jax.tree_util import Partial

from cat_jax import attacks, networks

NUM_CLASSES = 10
PEERS = {"foolbox": "foolbox (JAX)", "torchattacks": "torchattacks"}
KEY = jax.random.key(0)

# images -> adversarial images; the result is ready when it returns.
Run = Callable[[], np.ndarray]


def main() -> None:
    """Measures, prints a Markdown table, and writes JSON if asked to."""
    options = parse()
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.uniform(size=(options.num_images, 32, 32, 3)), jnp.float32)
    classifier = getattr(networks, options.network)(num_classes=NUM_CLASSES)
    variables = jax.jit(classifier.init)(KEY, images)
    forward = jax.jit(classifier.apply)
    labels = jnp.argmax(forward(variables, images), axis=-1)
    problem = (classifier, variables, images, labels, options.epsilon)

    made = {timing.OURS: ours(*problem)}
    for name, make in (("foolbox", foolbox_runs), ("torchattacks", torchattacks_runs)):
        if (peer := timing.installed(name)) is None:
            print(f"{name} is not installed and left out.", file=sys.stderr)
        else:
            made[PEERS[name]] = make(peer, *problem)
    known = made[timing.OURS]
    if unknown := [attack for attack in options.attack or () if attack not in known]:
        sys.exit(f"--attack: {', '.join(unknown)}; expected some of {', '.join(known)}.")
    runs = {
        attack: {name: of_name[attack] for name, of_name in made.items() if attack in of_name}
        for attack in options.attack or known
    }

    def refuse_fooled(attack: str, name: str, found: np.ndarray) -> None:
        if not (jnp.argmax(forward(variables, found), axis=-1) == labels).all():
            sys.exit(f"{attack} of {name} fooled some: give a smaller --epsilon.")

    seconds = timing.interleaved(runs, options.rounds, refuse_fooled)
    report = {
        **timing.machine("torch", *PEERS),
        "network": options.network,
        "num_images": options.num_images,
        "rounds": options.rounds,
        "epsilon": options.epsilon,
        "seconds": seconds,
    }
    print(timing.table(seconds, dict.fromkeys(runs, options.num_images)))
    timing.write(options.out, report)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--network", default="PreActResNet18", choices=["PreActResNet18", "SmallCNN"]
    )
    parser.add_argument("--attack", action="append", help="row of the table; default: all")
    parser.add_argument("--num_images", type=int, default=32, help="in the one batch")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, in turn")
    parser.add_argument("--epsilon", type=float, default=1e-6, help="so small that none is fooled")
    parser.add_argument(
        "--out", type=timing.output_file, help="JSON file to write: all times, versions, cores"
    )
    return parser.parse_args()


def ours(
    classifier: Any, variables: Any, images: jax.Array, labels: jax.Array, epsilon: float
) -> dict[str, Run]:
    """Our attacks, with as many gradients or queries as the others make.

    Square's budget counts the start, and FMN and DDN evaluate the last point too.
    """
    logits_fn = Partial(classifier.apply, variables)
    made = {
        "PGD-20": functools.partial(attacks.pgd, step_size=epsilon / 4, num_steps=20),
        "APGD-CE, 10 steps": functools.partial(attacks.apgd, num_steps=10),
        "APGD-T, 10 steps": functools.partial(attacks.apgd_t, num_steps=10, num_targets=1),
        "FAB-T, 10 steps": functools.partial(attacks.fab_t, num_steps=10, num_targets=1),
        "Square, 10 queries": functools.partial(attacks.square, num_queries=11),
        "MI-FGSM, 10 steps": functools.partial(attacks.mi_fgsm, num_steps=10),
        "PGD-20, L2": functools.partial(
            attacks.pgd, norm="l2", step_size=epsilon / 4, num_steps=20
        ),
        "APGD-CE, L2, 10 steps": functools.partial(attacks.apgd, norm="l2", num_steps=10),
        "FAB-T, L2, 10 steps": functools.partial(
            attacks.fab_t, norm="l2", num_steps=10, num_targets=1
        ),
        "Square, L2, 10 queries": functools.partial(attacks.square, norm="l2", num_queries=11),
        "FMN, 10 steps": functools.partial(attacks.fmn, num_steps=9),
        "DDN, 10 steps": functools.partial(attacks.ddn, num_steps=9),
    }

    def run(attack: Callable[..., jax.Array]) -> np.ndarray:
        return np.asarray(attack(logits_fn, images, labels, KEY, epsilon=epsilon))

    return {name: functools.partial(run, attack) for name, attack in made.items()}


def foolbox_runs(
    foolbox: ModuleType,
    classifier: Any,
    variables: Any,
    images: jax.Array,
    labels: jax.Array,
    epsilon: float,
    num_steps: int = 20,
) -> dict[str, Run]:
    """Foolbox's attacks on a compiled network: it does not compile on its own."""
    logits_fn = jax.jit(functools.partial(classifier.apply, variables))
    model = foolbox.models.JAXModel(logits_fn, bounds=(0, 1))
    made = {
        f"PGD-{num_steps}": foolbox.attacks.LinfPGD(
            abs_stepsize=epsilon / 4, steps=num_steps, rel_stepsize=None
        ),
        f"PGD-{num_steps}, L2": foolbox.attacks.L2PGD(
            abs_stepsize=epsilon / 4, steps=num_steps, rel_stepsize=None
        ),
        "FMN, 10 steps": foolbox.attacks.LInfFMNAttack(steps=10),
        "DDN, 10 steps": foolbox.attacks.DDNAttack(steps=10),
    }

    def run(attack: Callable[..., Any]) -> np.ndarray:
        return np.asarray(attack(model, images, labels, epsilons=epsilon)[1])

    return {name: functools.partial(run, attack) for name, attack in made.items()}


def torchattacks_runs(
    torchattacks: ModuleType,
    classifier: Any,
    variables: Any,
    images: jax.Array,
    labels: jax.Array,
    epsilon: float,
) -> dict[str, Run]:
    """Torchattacks' attacks on a network whose logits are ours. Two classes mean one target."""
    import torch
    import torch_networks

    theirs, true = torch_networks.to_torch(images), torch.tensor(np.asarray(labels)).long()
    model = torch_networks.ChannelsLast(
        torch_networks.twin(classifier, variables, images.shape[1:])
    )
    logits = np.asarray(jax.jit(classifier.apply)(variables, images))
    np.testing.assert_allclose(model(theirs).numpy(), logits, rtol=0, atol=1e-3)
    made = {
        "PGD-20": torchattacks.PGD(model, epsilon, alpha=epsilon / 4, steps=20),
        "APGD-CE, 10 steps": torchattacks.APGD(model, eps=epsilon, steps=10),
        "APGD-T, 10 steps": torchattacks.APGDT(model, eps=epsilon, steps=10, n_classes=2),
        "FAB-T, 10 steps": torchattacks.FAB(
            model, eps=epsilon, steps=10, multi_targeted=True, n_classes=2
        ),
        "Square, 10 queries": torchattacks.Square(model, eps=epsilon, n_queries=10),
        "MI-FGSM, 10 steps": torchattacks.MIFGSM(model, epsilon, alpha=epsilon / 10, steps=10),
        "PGD-20, L2": torchattacks.PGDL2(model, epsilon, alpha=epsilon / 4, steps=20),
        "APGD-CE, L2, 10 steps": torchattacks.APGD(model, norm="L2", eps=epsilon, steps=10),
        "FAB-T, L2, 10 steps": torchattacks.FAB(
            model, norm="L2", eps=epsilon, steps=10, multi_targeted=True, n_classes=2
        ),
        "Square, L2, 10 queries": torchattacks.Square(model, norm="L2", eps=epsilon, n_queries=10),
    }

    def run(attack: Callable[..., Any]) -> np.ndarray:
        return torch_networks.to_numpy(attack(theirs, true).detach())

    return {name: functools.partial(run, attack) for name, attack in made.items()}


if __name__ == "__main__":
    main()
