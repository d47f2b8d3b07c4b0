"""All runs of Auto-PGD: from several starts, and for APGD-T towards several targets."""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from cat_jax.attacks.apgd_l1 import run_l1
from cat_jax.attacks.apgd_losses import targeted_loss
from cat_jax.attacks.apgd_runs import Ascent, choose, run
from cat_jax.attacks.arguments import PixelRange
from cat_jax.attacks.balls import BALLS
from cat_jax.attacks.starts import per_example_keys, uniform_noise
from cat_jax.attacks.targets import likeliest_wrong, succeeds
from cat_jax.errors import UsageError
from cat_jax.types import Array, LogitsFn, Loss, Views


@functools.partial(
    jax.jit,
    static_argnames="num_steps num_restarts num_targets pixel_range norm is_targeted".split(),
)
def all_runs(
    logits_fn: LogitsFn,
    loss: Loss | None,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: Array | float,
    num_steps: int,
    num_restarts: int,
    num_targets: int,
    rho: Array | float,
    start: Array | None,
    pixel_range: PixelRange,
    norm: str,
    is_targeted: bool,
) -> Ascent:
    """The first successful run of each example; arguments as for `apgd`, whose checks it skips."""
    if norm == "l1":  # Because JAX cannot differentiate loops with traced lengths.
        logits_fn, loss, images, epsilon, start = lax.stop_gradient(
            (logits_fn, loss, images, epsilon, start)
        )
    epsilon = jnp.asarray(epsilon, images.dtype)
    natural = logits_fn(images)
    likeliest = likeliest_wrong(natural, labels, num_targets)
    num_runs = num_restarts * (len(likeliest) if loss is None else 1)
    if start is not None:
        if jnp.shape(start) not in (images.shape, (num_runs, *images.shape)):
            raise UsageError(
                f"start has the shape {list(jnp.shape(start))}; expected that of the images, "
                f"{list(images.shape)}, or one such for each of the {num_runs} runs."
            )
        start = jnp.broadcast_to(start, (num_runs, *images.shape)).astype(images.dtype)

    def run_again(number: Array, previous: Ascent) -> Ascent:
        def evaluate(candidate: Array) -> tuple[Array, tuple[Array, Array]]:
            logits = logits_fn(candidate)
            if loss is None:
                values = targeted_loss(logits, labels, likeliest[number // num_restarts])
            else:
                values = loss(Views(natural=natural, adversarial=logits), labels)
            values = values.astype(images.dtype)
            return jnp.sum(values), (values, succeeds(logits, labels, is_targeted))

        begin = start[number] if start is not None else _begin(key, number, images, epsilon, norm)
        gradient = jax.grad(evaluate, has_aux=True)
        if norm == "l1":
            ascent = run_l1(gradient, images, begin, epsilon, num_steps, pixel_range)
        else:
            ascent = run(gradient, images, begin, epsilon, num_steps, rho, pixel_range, norm)
        return jax.tree.map(functools.partial(choose, previous.fooled), previous, ascent)

    lowest = jnp.full(labels.shape, -jnp.inf, images.dtype)
    untouched = Ascent(images, succeeds(natural, labels, is_targeted), lowest, images)
    return lax.stop_gradient(lax.fori_loop(0, num_runs, run_again, untouched))


def _begin(key: Array, number: Array, images: Array, epsilon: Array, norm: str) -> Array:
    """The start of run `number`; each example draws t from its own key.

    On the surface of the ball: x + epsilon t / |t|, with t from U(-1, 1), in L2 from N(0, 1). In L1
    x + t with t from N(0, 1), which the run moves into the ball.
    """
    keys = per_example_keys(key, len(images))
    fresh = jax.vmap(functools.partial(jax.random.fold_in, data=number))(keys)
    if norm == "linf":
        noise = uniform_noise(fresh, images)
    else:
        shape, dtype = images.shape[1:], images.dtype
        noise = jax.vmap(lambda k: jax.random.normal(k, shape, dtype))(fresh)
    if norm == "l1":
        return images + noise
    return images + epsilon * noise / BALLS[norm].length(noise)
