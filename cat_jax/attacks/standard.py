"""The standard version of AutoAttack (Croce & Hein 2020): four attacks without tuned settings."""

import functools
from typing import Any

import jax

from cat_jax.attacks.apgd import apgd, apgd_t
from cat_jax.attacks.apgd_losses import adversarial_logit_ratio
from cat_jax.attacks.arguments import PixelRange, as_pixel_range, check_count, check_norm
from cat_jax.attacks.compose import Whole, union
from cat_jax.attacks.entry import Entry
from cat_jax.attacks.fab import fab_t
from cat_jax.attacks.square import square
from cat_jax.types import Array, LogitsFn

L1_RESTARTS, L1_TARGETS = 5, 5  # Of APGD-CE and of APGD-T in AutoAttack's L1 version.


# APGD on the DLR loss, a member of AutoAttack's version "plus".
apgd_dlr = functools.partial(apgd, loss=adversarial_logit_ratio)


def standard(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: Array | float,
    num_steps: int = 100,
    num_targets: int = 9,
    num_queries: int = 5000,
    pixel_range: PixelRange = (0.0, 1.0),
    norm: str = "linf",
) -> Array:
    """AutoAttack's cascade: APGD-CE, APGD-T, FAB-T, Square.

    A robust example withstands all four. Each attack runs on the complete batch, until all its
    examples are fooled. `evaluation.evaluate` is faster for a data set, because it attacks only the
    examples that are still right.

    Args:
      logits_fn, images, labels: as for `attacks.pgd`.
      key: one key, or one for each image, [B].
      epsilon: radius of the ball, on the [0, 1] pixel scale (8/255, not 8); or one for each
        image, [B].
      num_steps: number of steps of APGD and FAB for each target; 100 in AutoAttack. Static.
      num_targets: number of targets of APGD-T and FAB-T, at most K - 1; 9 in AutoAttack. Static.
        In L1, as in AutoAttack, APGD-T has at most 5 targets, and APGD-CE has 5 restarts.
      num_queries: budget of Square for each image; 5000 in AutoAttack. Static.
      pixel_range: range that clips the points; None: no clipping, which is another threat model.
      norm: norm of the ball, "linf", "l2" or "l1". Static.

    Returns:
      Images, shaped as `images`: the image of the first attack that fools the classifier. Examples
      that are misclassified already, or withstand all four, are returned unchanged.

    Raises:
      UsageError: as `attacks.pgd`.
    """
    counts = dict(num_steps=num_steps, num_targets=num_targets, num_queries=num_queries)
    check_count(**counts)
    check_norm(norm)
    entry = Entry.of(logits_fn, images, labels)
    if entry.is_empty:
        return images
    hyper: dict[str, Any] = {name: int(count) for name, count in counts.items()}
    hyper |= dict(epsilon=entry.radius("epsilon", epsilon, norm), norm=norm)
    hyper["pixel_range"] = as_pixel_range(pixel_range)
    return entry.result(_standard(entry.logits_fn, entry.images, labels, key, **hyper))


@functools.partial(
    jax.jit, static_argnames=("num_steps", "num_targets", "num_queries", "pixel_range", "norm")
)
def _standard(logits_fn: LogitsFn, images: Array, labels: Array, key: Array, **hyper: Any) -> Array:
    return union(list(standard_attacks(**hyper).values()))(logits_fn, images, labels, key)


def standard_attacks(
    *,
    epsilon: Array | float,
    num_steps: int = 100,
    num_targets: int = 9,
    num_queries: int = 5000,
    pixel_range: PixelRange = (0.0, 1.0),
    norm: str = "linf",
) -> dict[str, Whole]:
    """The four attacks of `standard` by name, in their order; the arguments are those of it."""
    ball: dict[str, Any] = dict(epsilon=epsilon, pixel_range=pixel_range, norm=norm)
    steps: dict[str, Any] = ball | dict(num_steps=num_steps)
    restarts: dict[str, Any] = dict(num_restarts=L1_RESTARTS) if norm == "l1" else {}
    first = min(num_targets, L1_TARGETS) if norm == "l1" else num_targets
    return {
        "apgd_ce": functools.partial(apgd, **steps, **restarts),
        "apgd_t": functools.partial(apgd_t, num_targets=first, **steps),
        "fab_t": functools.partial(fab_t, num_targets=num_targets, **steps),
        "square": functools.partial(square, num_queries=num_queries, **ball),
    }
