"""The training step of CAT in PyTorch as it was published, in our own words and with its order.

Eager and plain: what a reader of the published code would run. Images are [B, C, H, W].
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional


class Recipe(NamedTuple):
    """The settings of one of the two published programs.

    Attributes:
      epsilon, step_size, num_steps: of the attack, on the pixel scale [0, 1].
      kappa: of the margin that the attack maximises; None: the cross-entropy.
      clip: whether images stay in [0, 1], and the forwards on x' and x after the attack and after
        the step are made, as for CIFAR.
      beta, beta1: of the losses of theta and phi.
      weight_gradients: whether the attack computes those of the weights too, to drop them, as both
        published programs do.
    """

    epsilon: float
    step_size: float
    num_steps: int
    kappa: float | None
    clip: bool
    beta: float
    beta1: float
    weight_gradients: bool = True


class Step:
    """Holds both networks, in training mode, and their optimizers."""

    def __init__(
        self,
        classifier: nn.Module,
        mask_net: nn.Module,
        optimizer: Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer],
        recipe: Recipe,
    ) -> None:
        self.f, self.g = classifier.train(), mask_net.train()
        for network in (self.f, self.g):
            network.requires_grad_(True)
        self.recipe = recipe
        self.theta, self.phi = optimizer(self.f.parameters()), optimizer(self.g.parameters())

    def __call__(
        self, x: torch.Tensor, y: torch.Tensor, start: torch.Tensor
    ) -> tuple[float, float]:
        """One update of f and one of g, from the attack's start; their losses."""
        f, g, recipe = self.f, self.g, self.recipe
        delta = attack(f, x, y, start, recipe)
        if recipe.clip:
            f(x + delta)

        calibrated = self.calibrated(x, delta, g(x + delta).detach())
        views = (calibrated, x) if recipe.clip else (x, calibrated)
        logits = [f(view) for view in views]
        z_calibrated, z = logits if recipe.clip else logits[::-1]
        p = z.softmax(1)
        unsure = 1.0000001 - p.gather(1, y[:, None])[:, 0]
        natural = (functional.cross_entropy(z, y, reduction="none") * unsure).mean()
        theta_loss = natural + recipe.beta * divergence(z, z_calibrated)
        self.theta.zero_grad()
        theta_loss.backward()
        self.theta.step()

        calibrated = self.calibrated(x, delta, g(x + delta))
        z_adversarial, z_calibrated = f(x + delta), f(calibrated)
        phi_loss = divergence(z_adversarial, z_calibrated)
        phi_loss = phi_loss + recipe.beta1 * functional.cross_entropy(z_calibrated, y)
        self.phi.zero_grad()
        phi_loss.backward()
        self.phi.step()
        if recipe.clip:
            f(x)
        return theta_loss.item(), phi_loss.item()

    def calibrated(self, x: torch.Tensor, delta: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """x + M * delta."""
        moved = x + mask * delta
        return moved.clamp(0, 1) if self.recipe.clip else moved


def attack(
    f: nn.Module, x: torch.Tensor, y: torch.Tensor, start: torch.Tensor, recipe: Recipe
) -> torch.Tensor:
    """Delta after the recipe's signed steps."""
    delta = feasible(x, start, recipe)
    for _ in range(recipe.num_steps):
        delta.requires_grad_(True)
        loss = attack_loss(f(x + delta), y, recipe.kappa)
        if recipe.weight_gradients:
            loss.backward()
            grad = delta.grad
        else:
            (grad,) = torch.autograd.grad(loss, delta)
        with torch.no_grad():
            delta = feasible(x, delta + recipe.step_size * grad.sign(), recipe)
    return delta.detach()


def attack_loss(logits: torch.Tensor, y: torch.Tensor, kappa: float | None) -> torch.Tensor:
    """The cross-entropy, or minus the margin of the true class, cut off at -kappa."""
    if kappa is None:
        return functional.cross_entropy(logits, y)
    true = logits.gather(1, y[:, None])[:, 0]
    wrong = (logits - 1e4 * functional.one_hot(y, logits.shape[1])).amax(1)
    return -(true - wrong + kappa).clamp(min=0).sum()


def feasible(x: torch.Tensor, delta: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    """Delta within the ball, and x + delta within the pixel range if the recipe keeps to it."""
    delta = delta.clamp(-recipe.epsilon, recipe.epsilon)
    return torch.max(torch.min(delta, 1 - x), -x) if recipe.clip else delta


def divergence(p_logits: torch.Tensor, q_logits: torch.Tensor) -> torch.Tensor:
    """KL(P || Q), mean over the batch."""
    log_p, log_q = p_logits.log_softmax(1), q_logits.log_softmax(1)
    return functional.kl_div(log_q, log_p, reduction="batchmean", log_target=True)
