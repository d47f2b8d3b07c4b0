"""Auto-PGD: projected gradient ascent that chooses its own step sizes (Croce & Hein 2020)."""

from typing import Any

import jax.numpy as jnp

from cat_jax import objectives
from cat_jax.attacks.apgd_restarts import all_runs
from cat_jax.attacks.apgd_runs import Ascent
from cat_jax.attacks.arguments import (
    PixelRange,
    as_pixel_range,
    check_count,
    check_norm,
    check_share,
)
from cat_jax.attacks.callables import as_loss
from cat_jax.attacks.entry import Entry
from cat_jax.attacks.targets import Targets, as_targets, towards
from cat_jax.errors import UsageError
from cat_jax.types import Array, LogitsFn, Loss


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
    norm: str = "linf",
    targets: Targets = None,
) -> Array:
    """Auto-PGD in a ball (Croce & Hein 2020, Algorithm 1), as AutoAttack runs it.

    The ascent has momentum. It begins at a random point on the surface of the ball, with steps of
    2 epsilon. The distance between checkpoints shrinks. A checkpoint halves the step size of an
    example and returns the example to its best point in two cases: too few steps since the last
    checkpoint increased its loss; or the last checkpoint kept the step size, and the best loss has
    not increased since.

    In L1 (Croce & Hein 2021) there is no momentum, and a step moves only the entries with the
    largest gradients. Their number follows from the best point so far. A run has three stages, at
    3, 2 and 1 times epsilon, and only points of the last stage count.

    Args:
      logits_fn, images, labels: as for `attacks.pgd`.
      key: one key, or one for each image, [B]; unused if `start` is given.
      epsilon: radius of the ball, on the [0, 1] pixel scale (8/255, not 8); or one for each
        image, [B].
      num_steps: number of steps of a run. Static.
      loss: views of logits, labels -> [B], to be maximised, such as `adversarial_logit_ratio`.
      num_restarts: number of runs. A run skips images on which an earlier run succeeded. Static.
      rho: share of the steps of a window that must increase the loss to keep the step size; unused
        in L1.
      start: first iterate [B, H, W, C], moved into the ball and the pixel range; or one for each
        of the R runs, [R, B, H, W, C].
      pixel_range: range that clips the iterates; None: no clipping, which is another threat model.
      norm: norm of the ball, "linf", "l2" or "l1". Static.
      targets: classes [B] that the attack leads to, so that it minimises `loss` of the target;
        or "least_likely" or "random", see `choose_targets`; None: away from the label.

    Returns:
      Images, shaped as `images`. For each example, the last successful iterate of the first run
      that has one. Success is "misclassified", or with targets "classified as the target". An
      example without success, or whose natural image is a success, is returned unchanged. No
      gradient flows through the images.

    Raises:
      UsageError: as `attacks.pgd`, and if there are no restarts.
    """
    if loss is None:
        raise UsageError("loss is None; expected a function: apgd_t is the targeted attack.")
    hyper: dict[str, Any] = dict(epsilon=epsilon, num_steps=num_steps, num_restarts=num_restarts)
    hyper |= dict(loss=loss, rho=rho, start=start, pixel_range=pixel_range, norm=norm)
    hyper["targets"] = targets
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
    """`apgd` on the targeted DLR loss, towards several classes in turn: AutoAttack's APGD-T.

    The targets are the wrong classes with the largest natural logits. An image counts as fooled if
    it is misclassified, as any class. To choose the target
    yourself, use `apgd` with `targets`.

    The loss needs four classes. For fewer, it is the margin z_t - z_y of target and true class, and
    the compilation of the attack logs a warning.

    Args:
      logits_fn, images, labels, key, epsilon: as for `apgd`.
      num_steps: number of steps of a run. Static.
      num_targets: number of target classes, at most K - 1, the likeliest first. Static.
      num_restarts: number of runs for each target. Static.
      **kwargs: `rho`, `start`, `pixel_range` and `norm`, as for `apgd`. The R runs of a `start`
        are those for the first target, then those for the second, and so on.

    Returns:
      Images, as from `apgd`. A run skips images that an earlier target has fooled.
    """
    hyper: dict[str, Any] = dict(epsilon=epsilon, num_steps=num_steps, num_targets=num_targets)
    hyper |= dict(num_restarts=num_restarts, loss=None)
    return checked_apgd(logits_fn, images, labels, key, **hyper, **kwargs).adversarial


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
    norm: str = "linf",
    targets: Targets = None,
) -> Ascent:
    """The complete result of `apgd`, or for loss=None of `apgd_t`."""
    counts = dict(num_steps=num_steps, num_restarts=num_restarts, num_targets=num_targets)
    check_count(**counts)
    check_share(rho=rho)
    check_norm(norm)
    entry = Entry.of(logits_fn, images, labels)
    if entry.is_empty:
        return Ascent(images, jnp.zeros(0, bool), jnp.zeros(0, images.dtype), images)
    if (classes := as_targets(targets, entry, key)) is not None:
        loss = towards(loss, entry, classes)  # type: ignore[arg-type]
    elif loss is not None:
        loss = as_loss(loss, entry.num_classes, entry.images, labels)
    hyper: dict[str, Any] = {name: int(count) for name, count in counts.items()}
    hyper |= dict(epsilon=entry.radius("epsilon", epsilon, norm), rho=rho, start=start)
    hyper |= dict(pixel_range=as_pixel_range(pixel_range), norm=norm)
    hyper["is_targeted"] = classes is not None
    classes = labels if classes is None else classes
    ascent = all_runs(entry.logits_fn, loss, entry.images, classes, key, **hyper)
    return ascent._replace(adversarial=entry.result(ascent.adversarial))
