"""Square attack: random search in square windows, without gradients."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from cat_jax import losses
from cat_jax.attacks import square_search, square_windows
from cat_jax.attacks.arguments import PixelRange, as_pixel_range, check_count, check_norm
from cat_jax.attacks.entry import Entry
from cat_jax.attacks.starts import per_example_keys
from cat_jax.attacks.targets import Targets, as_targets, succeeds
from cat_jax.errors import UsageError
from cat_jax.types import Array, LogitsFn, per_image

# Numbers of proposals, out of HORIZON, after which the window's share of the image is halved.
BREAKPOINTS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
HORIZON = 10_000
MAX_CHANNELS = 30  # Because a colour is one int32 below 2 ** channels.


class SquareResult(NamedTuple):
    """Result of the search and its cost.

    Attributes:
      adversarial: [B, H, W, C], the images that `square` returns.
      fooled: bool [B], whether the attack succeeded on the example.
      queries: int32 [B], number of queries for the example: 0 if the natural image is a success,
        the budget if the attack never succeeded.
    """

    adversarial: Array
    fooled: Array
    queries: Array


def square(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: Array | float,
    num_queries: int = 5000,
    initial_share: float = 0.8,
    rescale_schedule: bool = False,
    pixel_range: PixelRange = (0.0, 1.0),
    norm: str = "linf",
    targets: Targets = None,
) -> Array:
    """Square attack (Andriushchenko et al. 2020, Algorithms 1 to 3): random search on the margin.

    In the L-infinity ball, the search begins at vertical stripes of +-epsilon. Each later query
    changes a square window to one colour, +-epsilon in each channel. The search keeps the change if
    the margin of the true class decreases, and ends for an image on which it succeeds.

    In L2 and L1, the search begins at tiles with two hills of opposite signs. Each later query adds
    such a window. The norm of the new window comes from its place and from a second window, which
    becomes zero. The L1 search is that of AutoAttack.

    The search draws windows and colours for each image, as the original code does. AutoAttack's
    code shares them among the images of a batch. A window may lie anywhere in the image. Both
    published codes never place one on the last row or the last column, which makes them weaker on
    small images.

    Args:
      logits_fn, images, labels: as for `attacks.pgd`. One forward pass on `images` comes on top of
        the budget.
      key: one key, or one for each image, [B].
      epsilon: radius of the ball, on the [0, 1] pixel scale (8/255, not 8); or one for each
        image, [B].
      num_queries: budget of each image. The start counts as the first query, as in the original
        code; AutoAttack's code adds it on top. One compilation serves every budget.
      initial_share: share of the image that the first windows cover, in (0, 1]. The search halves
        it after 10, 50, 200, 500, 1000, 2000, 4000, 6000 and 8000 proposals.
      rescale_schedule: whether to scale these numbers by num_queries / 10000, as the original code
        always does, and AutoAttack does not.
      pixel_range: range that clips the points; None: no clipping, which is another threat model.
      norm: norm of the ball, "linf", "l2" or "l1". Static.
      targets: classes [B] that the attack leads to, "least_likely" or "random", see
        `choose_targets`; None: away from the label.

    Returns:
      Images, shaped as `images`: the first successful point of each example. Success is
      "misclassified", or with targets "classified as the target". An example without success, or
      whose natural image is a success, is returned unchanged. No gradient flows through the images.

    Raises:
      UsageError: as `attacks.pgd`, for a budget or a share out of range, and for more than 30
        channels.
    """
    radius: dict[str, Any] = dict(epsilon=epsilon, pixel_range=pixel_range, norm=norm)
    windows: dict[str, Any] = dict(initial_share=initial_share, rescale_schedule=rescale_schedule)
    hyper = radius | windows | dict(num_queries=num_queries, targets=targets)
    return square_with_queries(logits_fn, images, labels, key, **hyper).adversarial


def square_with_queries(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: Array | float,
    num_queries: int = 5000,
    initial_share: float = 0.8,
    rescale_schedule: bool = False,
    pixel_range: PixelRange = (0.0, 1.0),
    norm: str = "linf",
    targets: Targets = None,
) -> SquareResult:
    """`square`, with the flags of its successes and the number of queries of each image."""
    check_count(num_queries=num_queries)
    check_norm(norm)
    entry = Entry.of(logits_fn, images, labels)
    _check_search(initial_share, images.shape[-1])
    if entry.is_empty:
        return SquareResult(images, jnp.zeros(0, bool), jnp.zeros(0, jnp.int32))
    sides, shape = window_sides(initial_share, *images.shape[1:3]), images.shape[1:]
    if norm != "linf":
        sides = square_windows.odd_sides(sides, *shape[:2])
    schedule = (
        jnp.array(sides, jnp.int32),
        jnp.array(last_proposals(num_queries, rescale_schedule), jnp.int32),
        None if norm == "linf" else jnp.asarray(square_windows.windows(sides, shape, norm)),
    )
    classes = as_targets(targets, entry, key)
    result = _search(
        entry.logits_fn,
        entry.images,
        labels if classes is None else classes,
        per_example_keys(key, len(images)),
        entry.radius("epsilon", epsilon, norm),
        num_queries,
        schedule,
        pixel_range=as_pixel_range(pixel_range),
        norm=norm,
        is_targeted=classes is not None,
    )
    return result._replace(adversarial=entry.result(result.adversarial))


@functools.partial(jax.jit, static_argnames=("pixel_range", "norm", "is_targeted"))
def _search(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    keys: Array,
    epsilon: Array | float,
    num_queries: Array | int,
    schedule: tuple[Array, Array, Array | None],
    *,
    pixel_range: PixelRange,
    norm: str,
    is_targeted: bool,
) -> SquareResult:
    logits_fn, images, epsilon = lax.stop_gradient((logits_fn, images, epsilon))
    sides, last, windows = schedule
    if windows is None:
        search = square_search.corners(images, epsilon, pixel_range)
    else:
        search = square_search.hills(images, epsilon, pixel_range, norm, windows)

    def margin_of(logits: Array) -> Array:
        margin = losses.margin(logits, labels)
        return -margin if is_targeted else margin

    def has_budget(carry: tuple[Any, ...]) -> Array:
        query, *_, fooled, _ = carry
        return (query < num_queries) & ~jnp.all(fooled)

    def ask(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        query, candidate, point, best, fooled, queries = carry
        logits = logits_fn(search.images_at(candidate))
        margin, success = margin_of(logits), succeeds(logits, labels, is_targeted)
        accepted = ~fooled & ((margin > best) | success)
        point = jnp.where(per_image(accepted), candidate, point)
        best = jnp.where(accepted, margin, best)
        # Because the start has key 0, the first proposal has key 1.
        fresh = jax.vmap(jax.random.fold_in, (0, None))(keys, query + 1)
        candidate = search.proposals(fresh, point, sides, jnp.sum(query > last))
        return query + 1, candidate, point, best, fooled | success, queries + ~fooled

    logits = logits_fn(images)
    natural = succeeds(logits, labels, is_targeted)
    start = search.starts(jax.vmap(lambda k: jax.random.fold_in(k, 0))(keys))
    unknown = jnp.full_like(losses.margin(logits, labels), -jnp.inf)
    begin = (jnp.int32(0), start, start, unknown, natural, jnp.zeros(len(images), jnp.int32))
    _, _, point, _, fooled, queries = lax.while_loop(has_budget, ask, begin)
    adversarial = jnp.where(per_image(fooled & ~natural), search.images_at(point), images)
    return SquareResult(adversarial, fooled, queries)


def window_sides(initial_share: float, height: int, width: int) -> list[int]:
    """The ten window sides in pixels: the first one, and one after each breakpoint."""
    shares = [initial_share / 2**halvings for halvings in range(len(BREAKPOINTS) + 1)]
    sides = [round(math.sqrt(share * height * width)) for share in shares]
    return [min(max(side, 1), height, width) for side in sides]


def last_proposals(num_queries: int, rescale: bool) -> list[int]:
    """Index of the last proposal before each halving of the window's share, counted from 0."""
    if not rescale:
        return list(BREAKPOINTS)
    # Proposal i halves the share if floor(i * HORIZON / num_queries) > breakpoint.
    return [-(-(b + 1) * num_queries // HORIZON) - 1 for b in BREAKPOINTS]


def _check_search(initial_share: float, num_channels: int) -> None:
    if not 0 < initial_share <= 1:
        raise UsageError(f"initial_share={initial_share}; expected (0, 1]: 0.8 is usual.")
    if num_channels > MAX_CHANNELS:
        raise UsageError(
            f"images have {num_channels} channels; expected at most {MAX_CHANNELS}: "
            "are they [B, H, W, C]?"
        )
