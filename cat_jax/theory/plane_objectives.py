"""The objectives that the paper's section 4 and its appendix compare, for networks in the plane.

Every objective searches its inner maximum on the same grid of offsets in the ball, so that a weak
attack cannot affect a boundary. phi is the logistic loss.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from cat_jax import methods
from cat_jax.types import Array, PyTree, Views

WIDTH = 32
TRADES_LAMBDA = 1.0  # With 0.5, training ends with one class for every point.
BETA = 1.0  # The beta of CAT in the paper's MNIST experiments, with beta1 = 0.3.


class Net(nn.Module):
    """A network with two hidden layers: [..., d] -> [..., num_outputs]."""

    num_outputs: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Returns real outputs."""
        for _ in range(2):
            x = nn.relu(nn.Dense(WIDTH)(x))
        return nn.Dense(self.num_outputs)(x)


class Batch(NamedTuple):
    """All points of a problem, on the device.

    Attributes:
      points: x, [N, 2].
      labels: y, [N], -1 or +1.
      deltas: offsets to search, [G, 2], including zero.
      allowed: whether f_oracle(x + delta) = y, bool [N, G].
    """

    points: Array
    labels: Array
    deltas: Array
    allowed: Array


# (parameters of both networks, batch) -> loss of each example [N].
Objective = Callable[[PyTree, Batch], Array]


def init(key: Array) -> PyTree:
    """Returns initial parameters of the classifier f and of the mask network g of `Cat`."""
    keys = jax.random.split(key)
    return {
        "classifier": Net(1).init(keys[0], jnp.zeros((1, 2))),
        "mask": Net(2).init(keys[1], jnp.zeros((1, 4))),
    }


def output(classifier: PyTree, x: Array) -> Array:
    """Returns f(x) [...] at points [..., 2]."""
    z: Any = Net(1).apply(classifier, x)
    return z[..., 0]


def phi(margins: Array) -> Array:
    """Returns the logistic loss log(1 + exp(-z)), the cross-entropy of two classes."""
    return jax.nn.softplus(-margins)


def standard(params: PyTree, batch: Batch) -> Array:
    """Plain training: phi(f(X) Y)."""
    return phi(output(params["classifier"], batch.points) * batch.labels)


def general(params: PyTree, batch: Batch) -> Array:
    """The paper's general objective: phi(f(X) Y) + max of phi(f(X') Y), f_oracle(X') = Y."""
    f = params["classifier"]
    worst = output(f, search(f, batch, batch.labels, batch.allowed))
    return standard(params, batch) + phi(worst * batch.labels)


def unconstrained(params: PyTree, batch: Batch) -> Array:
    """`general` with the maximum over the complete ball, as in the appendix with lambda 1."""
    f = params["classifier"]
    worst = output(f, search(f, batch, batch.labels))
    return standard(params, batch) + phi(worst * batch.labels)


def trades(params: PyTree, batch: Batch) -> Array:
    """TRADES (Zhang et al. 2019): phi(f(X) Y) + max of phi(f(X') f(X) / lambda)."""
    f = params["classifier"]
    outputs = output(f, batch.points)
    worst = output(f, search(f, batch, outputs))
    return standard(params, batch) + phi(worst * outputs / TRADES_LAMBDA)


@dataclasses.dataclass(frozen=True)
class Cat:
    """CAT (Eqs. 13, 14): a mask network g replaces the constraint, without knowing the oracle.

    Attributes:
      beta1: weight of the cross-entropy in g's loss, which should keep x'_cali in its class.
    """

    beta1: float

    def __call__(self, params: PyTree, batch: Batch) -> Array:
        """Returns the sum of both losses; each holds the other network fixed."""
        f, g = params["classifier"], params["mask"]
        fixed_f, fixed_g = jax.lax.stop_gradient((f, g))
        labels = (batch.labels > 0).astype(int)
        adversarial = search(f, batch, batch.labels)
        of_f = Views(
            natural=_logits(f, batch.points),
            calibrated=_logits(f, calibrate(fixed_g, batch, adversarial)),
        )
        of_g = Views(
            adversarial=_logits(fixed_f, adversarial),
            calibrated=_logits(fixed_f, calibrate(g, batch, adversarial)),
        )
        method = methods.cat(_no_attack, beta=BETA, beta1=self.beta1, conventions="paper")
        return method.classifier_loss(of_f, labels) + method.mask_loss(of_g, labels)


def search(
    classifier: PyTree, batch: Batch, direction: Array, allowed: Array | None = None
) -> Array:
    """Returns the x' [N, 2] of the grid with the least f(x') direction, where phi is largest.

    No gradient flows through the choice of x'.
    """
    inside = batch.points[:, None, :] + batch.deltas[None]
    products = output(jax.lax.stop_gradient(classifier), inside) * direction[:, None]
    if allowed is not None:
        products = jnp.where(allowed, products, jnp.inf)
    return batch.points + batch.deltas[jnp.argmin(products, axis=1)]


def calibrate(mask_net: PyTree, batch: Batch, adversarial: Array) -> Array:
    """Returns x'_cali = x + M delta, [N, 2] (Eq. 10); g takes x, and delta in epsilons."""
    delta = adversarial - batch.points
    seen = jnp.concatenate([batch.points, delta / jnp.max(batch.deltas)], axis=-1)
    z: Any = Net(2).apply(mask_net, seen)
    return batch.points + jax.nn.sigmoid(z) * delta


def _logits(classifier: PyTree, x: Array) -> Array:
    """Returns (0, f(x)), whose softmax cross-entropy is phi(f(x) y)."""
    z = output(classifier, x)
    return jnp.stack([jnp.zeros_like(z), z], axis=-1)


def _no_attack(*args: Any) -> Any:
    raise NotImplementedError("Only the losses of this method are used; x' comes from `search`.")


OBJECTIVES: dict[str, Objective] = {
    "standard": standard,
    "unconstrained": unconstrained,
    "trades": trades,
    "general": general,
    "cat(beta1=0.3)": Cat(0.3),
    "cat(beta1=1)": Cat(1.0),
}
