"""AutoAttack's version for random defences (Croce & Hein 2020): APGD on two losses."""

import functools
from typing import Any

from cat_jax.attacks.apgd import apgd
from cat_jax.attacks.compose import union
from cat_jax.attacks.standard import apgd_dlr
from cat_jax.types import Array, LogitsFn


def rand(
    logits_fn: LogitsFn,
    images: Array,
    labels: Array,
    key: Array,
    *,
    epsilon: Array | float,
    **kwargs: Any,
) -> Array:
    """AutoAttack's cascade for random classifiers: APGD on the cross-entropy, then on DLR.

    Args:
      logits_fn: the mean over draws, `attacks.expectation(logits_fn_with_key, 20)`.
      images, labels, key, epsilon: as for `attacks.apgd`.
      **kwargs: as for `attacks.apgd`, without `loss`.

    Returns:
      Images, shaped as `images`: for each example, what the first of the two found that fooled it.
      Those that are wrong from the start, or withstand both, are returned unchanged.
    """
    attacks = [functools.partial(f, epsilon=epsilon, **kwargs) for f in (apgd, apgd_dlr)]
    return union(attacks)(logits_fn, images, labels, key)
