"""The objectives that section 4 and its appendix compare, for small networks in the plane.

The inner maximum is searched on a grid of offsets in the ball, the same for every objective, so
that no attack's weakness comes between an objective and its boundary. phi is the logistic loss.
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
TRADES_LAMBDA = 1.0  # Of `trades`; with 0.5 training ends in one class for every point.
BETA = 1.0  # CAT's, as in the paper's MNIST experiments; its beta1 was 0.3 there.


class Net(nn.Module):
    """Two hidden layers: [..., d] -> [..., num_outputs]."""

    num_outputs: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Real outputs."""
        for _ in range(2):
            x = nn.relu(nn.Dense(WIDTH)(x))
        return nn.Dense(self.num_outputs)(x)


class Batch(NamedTuple):
    """A whole problem, on the device.

    Attributes:
      points: [N, 2].
      labels: -1 or +1, [N].
      deltas: the offsets that are searched, [G, 2], zero among them.
      allowed: bool [N, G]: is f_oracle(x + delta) = y?
    """

    points: Array
    labels: Array
    deltas: Array
    allowed: Array


# (parameters of both networks, batch) -> loss of each example [N].
Objective = Callable[[PyTree, Batch], Array]


def init(key: Array) -> PyTree:
    """Initial parameters: of the classifier f, and of the mask network g that `Cat` alone uses."""
    keys = jax.random.split(key)
    return {
        "classifier": Net(1).init(keys[0], jnp.zeros((1, 2))),
        "mask": Net(2).init(keys[1], jnp.zeros((1, 4))),
    }


def output(classifier: PyTree, x: Array) -> Array:
    """f(x): [..., 2] -> [...]."""
    z: Any = Net(1).apply(classifier, x)
    return z[..., 0]


def phi(margins: Array) -> Array:
    """The logistic loss, log(1 + exp(-z)): the cross-entropy of two classes."""
    return jax.nn.softplus(-margins)


def standard(params: PyTree, batch: Batch) -> Array:
    """phi(f(X) Y): plain training."""
    return phi(output(params["classifier"], batch.points) * batch.labels)


def general(params: PyTree, batch: Batch) -> Array:
    """The paper's general objective: phi(f(X) Y) + max of phi(f(X') Y), f_oracle(X') = Y."""
    f = params["classifier"]
    worst = output(f, search(f, batch, batch.labels, batch.allowed))
    return standard(params, batch) + phi(worst * batch.labels)


def unconstrained(params: PyTree, batch: Batch) -> Array:
    """The same, its maximum over the whole ball: what the appendix compares, with lambda 1."""
    f = params["classifier"]
    worst = output(f, search(f, batch, batch.labels))
    return standard(params, batch) + phi(worst * batch.labels)


def trades(params: PyTree, batch: Batch) -> Array:
    """As Zhang et al. (2019) state theirs: phi(f(X) Y) + max of phi(f(X') f(X) / lambda)."""
    f = params["classifier"]
    outputs = output(f, batch.points)
    worst = output(f, search(f, batch, outputs))
    return standard(params, batch) + phi(worst * outputs / TRADES_LAMBDA)


@dataclasses.dataclass(frozen=True)
class Cat:
    """CAT: a mask network g stands in for the constraint, which it is not told (Eqs. 13, 14).

    Attributes:
      beta1: weight of the cross-entropy in g's loss, which is to keep x'_cali in its class.
    """

    beta1: float

    def __call__(self, params: PyTree, batch: Batch) -> Array:
        """One sum for both networks: each loss sees the other's parameters as constants."""
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
    """The x' [N, 2] of the grid with the least f(x') direction: there phi is largest.

    No gradient flows through the choice, as none does through a maximum's argument.
    """
    inside = batch.points[:, None, :] + batch.deltas[None]
    products = output(jax.lax.stop_gradient(classifier), inside) * direction[:, None]
    if allowed is not None:
        products = jnp.where(allowed, products, jnp.inf)
    return batch.points + batch.deltas[jnp.argmin(products, axis=1)]


def calibrate(mask_net: PyTree, batch: Batch, adversarial: Array) -> Array:
    """x'_cali = x + M delta, [N, 2]: g is shown x and delta, in units of epsilon (Eq. 10)."""
    delta = adversarial - batch.points
    seen = jnp.concatenate([batch.points, delta / jnp.max(batch.deltas)], axis=-1)
    z: Any = Net(2).apply(mask_net, seen)
    return batch.points + jax.nn.sigmoid(z) * delta


def _logits(classifier: PyTree, x: Array) -> Array:
    """(0, f(x)): their softmax cross-entropy is phi of f(x) y."""
    z = output(classifier, x)
    return jnp.stack([jnp.zeros_like(z), z], axis=-1)


def _no_attack(*args: Any) -> Any:
    raise NotImplementedError("Of this method the losses alone are used: x' is searched.")


OBJECTIVES: dict[str, Objective] = {
    "standard": standard,
    "unconstrained": unconstrained,
    "trades": trades,
    "general": general,
    "cat(beta1=0.3)": Cat(0.3),
    "cat(beta1=1)": Cat(1.0),
}
