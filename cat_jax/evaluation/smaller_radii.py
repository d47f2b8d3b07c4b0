"""The results of an attack that minimises the distance, at radii below that of its run."""

from collections.abc import Mapping

import numpy as np

from cat_jax.attacks.named import NamedAttack
from cat_jax.evaluation import results
from cat_jax.evaluation.images import SLACK
from cat_jax.evaluation.results import Place, Record, Result
from cat_jax.runtime import processes


def within(
    farthest: Result, point: NamedAttack, blank: Record, places: Mapping[float, Place]
) -> Result:
    """The result at the radius of `point`: an image that is further away counts as right.

    Args:
      farthest: result of the run, at its own radius.
      point: the attack at a radius that is not larger.
      blank: record of the same images before the run.
      places: files of the evaluation at each radius. A complete record is kept, because another
        run, with another largest radius, may have written it.
    """
    conditions = point.conditions
    epsilon = conditions["epsilon"]
    place = places.get(epsilon)
    record = processes.from_first(lambda: results.read(place, blank))
    if np.any(record.flags == results.UNKNOWN):
        is_farther = farthest.distances > epsilon + SLACK * max(epsilon, 1.0)
        record = blank._replace(
            flags=(farthest.flags | is_farther).astype(np.int8),
            queries=farthest.queries,
            distances=farthest.distances,
            excess=farthest.excess,
            origin=farthest.origin,
        )
        if place is not None:
            results.write(place, record)
    return record.result(point.name, conditions)
