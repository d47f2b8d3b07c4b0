"""Auto-PGD: projected gradient ascent that finds its own step sizes (Croce & Hein 2020)."""

import functools
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from cat_jax import losses, objectives
from cat_jax.attacks.arguments import PixelRange, as_pixel_range, check_count, check_share
from cat_jax.attacks.ascent import project
from cat_jax.attacks.balls import BALLS
from cat_jax.attacks.callables import as_loss
from cat_jax.attacks.entry import Entry
from cat_jax.attacks.starts import per_example_keys, uniform_noise
from cat_jax.attacks.targets import likeliest_wrong
from cat_jax.errors import UsageError
from cat_jax.types import Array, LogitsFn, Loss, Views, per_image

logger = logging.getLogger(__name__)
MOMENTUM = 0.75  # Of a move: the share of the new step; the rest repeats the last move.


def apgd(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: Array | float,
    num_steps: int = 100,
    loss: Loss = objectives.adversarial_cross_entropy,
    num_restarts: int = 1,
    rho: Array | float = 0.75,
    start: Array | None = None,
    pixel_range: PixelRange = (0.0, 1.0),
) -> Array:
    """Auto-PGD in an L-infinity ball (Croce & Hein 2020, Algorithm 1), as AutoAttack runs it.

    Ascent with momentum from a random point on the ball's surface, in steps of 2 epsilon. At
    checkpoints, ever closer together, an example's step is halved and the example goes back to
    its best point, if too few of the steps since the last checkpoint raised its loss, or if its
    step was kept there and its best loss has not risen since.

    Args:
      logits_fn, images, labels: as for `attacks.pgd`.
      key: one key, or one for each image, [B]; unused if `start` is given.
      epsilon: radius of the ball, on the [0, 1] pixel scale (8/255, not 8); or one for each
        image, [B].
      num_steps: steps of each run. Static.
      loss: views of logits, labels -> [B], to be maximised, such as `adversarial_logit_ratio`.
      num_restarts: number of runs; later ones skip images that an earlier one fooled. Static.
      rho: a step is halved unless more than this share of a window's steps raised the loss.
      start: begin at these images instead, moved into the ball and the pixel range,
        [B, H, W, C]; or each of the R runs at its own, [R, B, H, W, C].
      pixel_range: what iterates are clipped to; None: never clipped, another threat model.

    Returns:
      Images, shaped as `images`: of each example the last misclassified iterate of the first run
      that has one. An example that is never misclassified, or is so from the start, is returned
      unchanged. No gradient flows through them.

    Raises:
      UsageError: as `attacks.pgd`, and without restarts.
    """
    if loss is None:
        raise UsageError("loss is None; expected a function: apgd_t is the targeted attack.")
    hyper: dict[str, Any] = dict(epsilon=epsilon, num_steps=num_steps, num_restarts=num_restarts)
    hyper |= dict(loss=loss, rho=rho, start=start, pixel_range=pixel_range)
    return checked_apgd(logits_fn, images, labels, key, **hyper).adversarial


def apgd_t(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: Array | float,
    num_steps: int = 100,
    num_targets: int = 9,
    num_restarts: int = 1,
    **kwargs: Any,
) -> Array:
    """`apgd` on the targeted DLR loss, towards one class after the other: AutoAttack's APGD-T.

    The targets are the second to the (num_targets + 1)-th class of the natural logits: at most
    K - 1, and never the true one. `labels` are the true classes, not the targets.

    The loss needs four classes. For fewer it is the margin of target and true class, z_t - z_y, and
    the compilation of the attack logs a warning.

    Args:
      logits_fn, images, labels, key, epsilon: as for `apgd`.
      num_steps: steps of each run. Static.
      num_targets: number of target classes, the likeliest first. Static.
      num_restarts: number of runs for each target. Static.
      **kwargs: `rho`, `start` and `pixel_range`, as for `apgd`. The R runs of a `start` are those
        for the first target, then those for the second, and so on.

    Returns:
      Images, as `apgd`: later targets leave as it is what an earlier one fooled.
    """
    hyper: dict[str, Any] = dict(epsilon=epsilon, num_steps=num_steps, num_targets=num_targets)
    hyper |= dict(num_restarts=num_restarts, loss=None)
    return checked_apgd(logits_fn, images, labels, key, **hyper, **kwargs).adversarial


def adversarial_logit_ratio(logits: Views, labels: Array) -> Array:
    """DLR of x' (Croce & Hein 2020); for two classes, with a warning, its numerator, the margin."""
    if logits.adversarial.shape[-1] >= 3:
        return losses.logit_ratio(logits.adversarial, labels)
    logger.warning("DLR needs three classes and got two: the margin takes its place.")
    return losses.margin(logits.adversarial, labels)


class Ascent(NamedTuple):
    """What was found for each example, by the last run that it took part in.

    Attributes:
      adversarial: [B, H, W, C], the last misclassified iterate; `images` where there is none.
      fooled: [B], is `adversarial` misclassified?
      best_loss: [B], the highest loss of an iterate; -inf if the example is wrong as it is.
      best_point: [B, H, W, C], where it was.
    """

    adversarial: Array
    fooled: Array
    best_loss: Array
    best_point: Array


def checked_apgd(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: Array | float,
    num_steps: int,
    loss: Loss | None,
    num_restarts: int = 1,
    num_targets: int = 1,
    rho: Array | float = 0.75,
    start: Array | None = None,
    pixel_range: PixelRange = (0.0, 1.0),
) -> Ascent:
    """`apgd`, or for loss=None `apgd_t`, with all that it found."""
    counts = dict(num_steps=num_steps, num_restarts=num_restarts, num_targets=num_targets)
    check_count(**counts)
    check_share(rho=rho)
    entry = Entry.of(logits_fn, images, labels)
    if entry.is_empty:
        return Ascent(images, jnp.zeros(0, bool), jnp.zeros(0, images.dtype), images)
    if loss is not None:
        loss = as_loss(loss, entry.num_classes, entry.images, labels)
    hyper: dict[str, Any] = {name: int(count) for name, count in counts.items()}
    hyper |= dict(epsilon=entry.radius("epsilon", epsilon), rho=rho, start=start)
    hyper["pixel_range"] = as_pixel_range(pixel_range)
    ascent = _apgd(entry.logits_fn, loss, entry.images, labels, key, **hyper)
    return ascent._replace(adversarial=entry.result(ascent.adversarial))


@functools.partial(
    jax.jit, static_argnames=("num_steps", "num_restarts", "num_targets", "pixel_range")
)
def _apgd(
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
) -> Ascent:
    epsilon = jnp.asarray(epsilon, images.dtype)
    natural = logits_fn(images)
    targets = likeliest_wrong(natural, labels, num_targets)
    num_runs = num_restarts * (len(targets) if loss is None else 1)
    if start is not None:
        if jnp.shape(start) not in (images.shape, (num_runs, *images.shape)):
            raise UsageError(
                f"start has the shape {list(jnp.shape(start))}; expected that of the images, "
                f"{list(images.shape)}, or one such for each of the {num_runs} runs."
            )
        start = jnp.broadcast_to(start, (num_runs, *images.shape)).astype(images.dtype)

    def run_again(run: Array, known: Ascent) -> Ascent:
        def evaluate(candidate: Array) -> tuple[Array, tuple[Array, Array]]:
            logits = logits_fn(candidate)
            if loss is None:
                values = targeted_loss(logits, labels, targets[run // num_restarts])
            else:
                values = loss(Views(natural=natural, adversarial=logits), labels)
            values = values.astype(images.dtype)
            return jnp.sum(values), (values, ~losses.is_right(logits, labels))

        begin = _surface_point(key, run, images, epsilon) if start is None else start[run]
        gradient = jax.grad(evaluate, has_aux=True)
        found = _run(gradient, images, begin, epsilon, num_steps, rho, pixel_range)
        return jax.tree.map(functools.partial(_choose, known.fooled), known, found)

    wrong = ~losses.is_right(natural, labels)
    nothing = Ascent(images, wrong, jnp.full(labels.shape, -jnp.inf, images.dtype), images)
    return lax.stop_gradient(lax.fori_loop(0, num_runs, run_again, nothing))


class _Path(NamedTuple):
    """Where a run is. Each field is [B, H, W, C], as is the step size, [B, 1, 1, 1], or [B]."""

    candidate: Array
    previous: Array
    step_size: Array
    last_loss: Array
    increases: Array  # Steps since the checkpoint that raised the loss.
    checkpoint_loss: Array  # The best loss at the checkpoint.
    halved: Array  # Was the step halved there?
    best_gradient: Array
    found: Ascent


def _run(
    evaluate: Callable[[Array], tuple[Array, tuple[Array, Array]]],
    images: Array,
    start: Array,
    epsilon: Array,
    num_steps: int,
    rho: Array | float,
    pixel_range: PixelRange,
) -> Ascent:
    """One run: num_steps + 1 points, of which `evaluate` gives gradient, (loss, misclassified?)."""
    windows = jnp.asarray(window_lengths(num_steps))
    into_ball = functools.partial(project, images=images, epsilon=epsilon, pixel_range=pixel_range)

    def visit(step: Array, path: _Path) -> _Path:
        gradient, (values, wrong) = evaluate(path.candidate)
        path = _record(path, values, gradient, wrong)
        path, gradient = _checkpoint(path, gradient, windows[step], rho)
        here, share = path.candidate, jnp.where(step == 0, 1.0, MOMENTUM).astype(images.dtype)
        ahead = into_ball(here + path.step_size * BALLS["linf"].steepest(gradient))
        moved = here + share * (ahead - here) + (1 - share) * (here - path.previous)
        return path._replace(candidate=into_ball(moved), previous=here)

    start, none = into_ball(start), jnp.zeros(len(images), bool)
    lowest = jnp.full(len(images), -jnp.inf, images.dtype)
    path = _Path(
        candidate=start,
        previous=start,
        step_size=jnp.broadcast_to(2 * epsilon, (len(images), 1, 1, 1)),
        last_loss=-lowest,  # The start is no increase.
        increases=jnp.zeros(len(images), jnp.int32),
        checkpoint_loss=lowest,
        halved=~none,  # The first checkpoint looks at the increases alone.
        best_gradient=jnp.zeros_like(images),
        found=Ascent(images, none, lowest, start),
    )
    return lax.fori_loop(0, num_steps + 1, visit, path).found


def _record(path: _Path, values: Array, gradient: Array, wrong: Array) -> _Path:
    """`path` with what was seen at its candidate."""
    found = path.found
    best = values > found.best_loss
    return path._replace(
        last_loss=values,
        increases=path.increases + (values > path.last_loss),
        best_gradient=_choose(best, gradient, path.best_gradient),
        found=Ascent(
            adversarial=_choose(wrong, path.candidate, found.adversarial),
            fooled=found.fooled | wrong,
            best_loss=_choose(best, values, found.best_loss),
            best_point=_choose(best, path.candidate, found.best_point),
        ),
    )


def _checkpoint(
    path: _Path, gradient: Array, window: Array, rho: Array | float
) -> tuple[_Path, Array]:
    """Where a window ends: where Condition 1 or 2 of the paper holds, half the step from the best.

    The step before stays `previous`, so that the next one's momentum points from there.
    """
    ends, best_loss = window > 0, path.found.best_loss
    few = path.increases <= rho * window
    stuck = ~path.halved & (best_loss <= path.checkpoint_loss)
    halve = ends & (few | stuck)
    path = path._replace(
        candidate=_choose(halve, path.found.best_point, path.candidate),
        step_size=_choose(halve, path.step_size / 2, path.step_size),
        increases=jnp.where(ends, 0, path.increases),
        checkpoint_loss=jnp.where(ends, best_loss, path.checkpoint_loss),
        halved=jnp.where(ends, halve, path.halved),
    )
    return path, _choose(halve, path.best_gradient, gradient)


def window_lengths(num_steps: int) -> np.ndarray:
    """[num_steps + 1]: how many steps are in the window that step t ends; 0: it ends none.

    The first has 22 % of all steps, each later one 3 % of them less, but never below 6 %.
    """
    length, shorter, least = (max(share * num_steps // 100, 1) for share in (22, 3, 6))
    lengths, end = np.zeros(num_steps + 1, np.int32), length
    while end <= num_steps:
        lengths[end] = length
        length = max(length - shorter, least)
        end += length
    return lengths


def targeted_loss(logits: Array, labels: Array, targets: Array) -> Array:
    """The loss that `apgd_t` ascends: targeted DLR, for two or three classes a margin.

    Args:
      logits: [B, K].
      labels: true classes, integers [B].
      targets: wrong classes, integers [B].

    Returns:
      [B]
    """
    if (num_classes := logits.shape[-1]) >= 4:
        return losses.targeted_logit_ratio(logits, labels, targets)
    logger.warning(
        "Targeted DLR needs four classes and got %d: the margin of target and true class takes "
        "its place.",
        num_classes,
    )
    of_target, of_true = (jnp.take_along_axis(logits, c[:, None], -1) for c in (targets, labels))
    return (of_target - of_true)[:, 0]


def _surface_point(key: Array, run: Array, images: Array, epsilon: Array) -> Array:
    """x + epsilon t / max |t|, t from U(-1, 1): each example's from its own key and `run`."""
    keys = per_example_keys(key, len(images))
    noise = uniform_noise(jax.vmap(functools.partial(jax.random.fold_in, data=run))(keys), images)
    return images + epsilon * noise / jnp.max(jnp.abs(noise), axis=(1, 2, 3), keepdims=True)


def _choose(condition: Array, yes: Array, no: Array) -> Array:
    """`yes` for the examples where `condition` [B] holds, `no` for the others."""
    return jnp.where(condition if yes.ndim == 1 else per_image(condition), yes, no)
