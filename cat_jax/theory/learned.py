"""Trains networks in the plane with each objective and measures their boundaries."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from cat_jax.errors import check_choice
from cat_jax.theory import error_rates, plane_objectives, problems
from cat_jax.theory.piecewise import sign
from cat_jax.theory.plane_objectives import OBJECTIVES, Batch
from cat_jax.theory.problems import Problem
from cat_jax.types import Array, PyTree

RESOLUTION = 9  # Points along each axis of the grid in a ball during training.
LEARNING_RATE = 1e-2
COLUMNS, HEIGHTS = 101, 801  # The mesh on the unit square that boundaries are compared on.


class Measured(NamedTuple):
    """The errors and the boundary of one network.

    Attributes:
      natural, robust, constrained: shares of the test points as in `error_rates.Errors`, by search.
      calibrated: R_cali as the share of points with a robust error or a crossed ball, because a
        grid would miss zeros of f, which count.
      crossed: share of test points whose balls the oracle's boundary crosses.
      distance: mean distance between the learned boundary and the oracle's along x2, in epsilons.
      largest_distance: the largest such distance.
      mean_mask: mean of M. This and the next two are NaN without a mask network.
      adversarial_beyond: share of training points with f_oracle(x') != y.
      calibrated_beyond: share with f_oracle(x'_cali) != y, which the mask should prevent.
    """

    natural: float
    robust: float
    calibrated: float
    constrained: float
    crossed: float
    distance: float
    largest_distance: float
    mean_mask: float = float("nan")
    adversarial_beyond: float = float("nan")
    calibrated_beyond: float = float("nan")


def fit(objective: str, problem: Problem, *, seeds: Sequence[int], num_steps: int) -> PyTree:
    """Trains networks from several initial values with Adam on all points of one problem.

    Args:
      objective: one of `plane_objectives.OBJECTIVES`.
      problem: training set.
      seeds: seeds of the initial weights; one program trains all networks.
      num_steps: steps of Adam; the learning rate falls to 0 along a cosine.

    Returns:
      Parameters of both networks, with a leading axis of seeds.

    Raises:
      UsageError: if `objective` is unknown.
    """
    check_choice("objective", objective, OBJECTIVES)
    params = _init(jnp.asarray(seeds))
    return _fit(params, _batch(problem), objective=objective, num_steps=num_steps)


def classify(params: PyTree, index: int) -> Callable[[np.ndarray], np.ndarray]:
    """Returns the classifier of the seed at `index`: points [..., 2] -> real outputs, in NumPy."""
    chosen = jax.tree.map(lambda leaf: leaf[index], params["classifier"])
    return lambda points: np.asarray(_output(chosen, jnp.asarray(points, jnp.float32)))


def measure(
    params: PyTree, index: int, train: Problem, test: Problem, *, masked: bool = False
) -> Measured:
    """Measures the network at `index`, with its mask if it is `masked`."""
    f = classify(params, index)
    errors = error_rates.dense(f, test, resolution=21)
    crossed = problems.crossed(test)
    distances = boundary_distances(f, test)
    measured = Measured(
        natural=float(np.mean(errors.natural)),
        robust=float(np.mean(errors.robust)),
        calibrated=float(np.mean(errors.robust | crossed)),
        constrained=float(np.mean(errors.constrained)),
        crossed=float(np.mean(crossed)),
        distance=float(np.mean(distances)),
        largest_distance=float(np.max(distances)),
    )
    return measured._replace(**_mask(params, index, train)) if masked else measured


def boundary_distances(f: Callable[[np.ndarray], np.ndarray], problem: Problem) -> np.ndarray:
    """Returns the share of each column where f and the oracle differ, in epsilons.

    If each boundary passes the column once, this is their distance along it.
    """
    x1, x2 = np.meshgrid(np.linspace(0, 1, COLUMNS), np.linspace(0, 1, HEIGHTS), indexing="ij")
    mesh = np.stack([x1, x2], axis=-1)
    return np.mean(sign(f(mesh)) != sign(problem.oracle(mesh)), axis=1) / problem.epsilon


def _mask(params: PyTree, index: int, problem: Problem) -> dict[str, float]:
    chosen, batch = jax.tree.map(lambda leaf: leaf[index], params), _batch(problem)
    adversarial = plane_objectives.search(chosen["classifier"], batch, batch.labels)
    calibrated = plane_objectives.calibrate(chosen["mask"], batch, adversarial)
    delta = adversarial - batch.points
    mask = jnp.where(delta == 0, jnp.nan, (calibrated - batch.points) / delta)

    def beyond(points: Array) -> float:
        return float(np.mean(sign(problem.oracle(np.asarray(points))) != problem.labels))

    return {
        "mean_mask": float(jnp.nanmean(mask)),
        "adversarial_beyond": beyond(adversarial),
        "calibrated_beyond": beyond(calibrated),
    }


def _batch(problem: Problem) -> Batch:
    deltas = problem.epsilon * error_rates.offsets(RESOLUTION)
    truth = sign(problem.oracle(problem.points[:, None] + deltas))
    return Batch(
        jnp.asarray(problem.points, jnp.float32),
        jnp.asarray(problem.labels, jnp.float32),
        jnp.asarray(deltas, jnp.float32),
        jnp.asarray(truth == problem.labels[:, None]),
    )


_output = jax.jit(plane_objectives.output)
# Separate from `_fit` because that compiles once for each objective.
_init = jax.jit(jax.vmap(lambda seed: plane_objectives.init(jax.random.key(seed))))


@functools.partial(jax.jit, static_argnames=("objective", "num_steps"))
def _fit(params: PyTree, batch: Batch, *, objective: str, num_steps: int) -> PyTree:
    optimizer = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, num_steps))

    def loss(params: PyTree) -> Array:
        losses = jax.vmap(lambda one: jnp.mean(OBJECTIVES[objective](one, batch)))(params)
        return jnp.sum(losses)  # Networks share no parameters, so each gets its own gradient.

    def step(carry: Any, _: None) -> Any:
        params, state = carry
        updates, state = optimizer.update(jax.grad(loss)(params), state)
        return (optax.apply_updates(params, updates), state), None

    return jax.lax.scan(step, (params, optimizer.init(params)), length=num_steps)[0][0]
