"""FMN and DDN leave the accuracies that foolbox's leave, on 200 digits and the same weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import robust_digits
from jax.tree_util import Partial

from cat_jax import attacks, data

RADII = {"linf": (0.05, 0.1, 0.15, 0.2, 0.3), "l2": (0.25, 0.5, 0.6, 0.75, 1.0)}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Of foolbox, on new SciPy and NumPy.
@pytest.mark.parametrize(
    "attack, theirs, norm",
    [(attacks.fmn, "LInfFMNAttack", "linf"), (attacks.ddn, "DDNAttack", "l2")],
)
def test_its_accuracies_are_those_of_foolbox(attack, theirs, norm):
    """Within 1 point at each of five radii, or ours are lower."""
    foolbox = pytest.importorskip("foolbox")
    few = data.load("digits").test.first(200)
    images, labels = data.to_unit(few.images), jnp.asarray(few.labels)
    logits_fn = Partial(robust_digits.network, robust_digits.trained())

    def left(adversarial):
        distances = attacks.distances(logits_fn, images, labels, adversarial, norm=norm)
        return np.array([np.mean(np.asarray(distances) > radius) for radius in RADII[norm]])

    ours = left(attack(logits_fn, images, labels, jax.random.key(0)))
    with jax.numpy_rank_promotion("allow"):
        model = foolbox.JAXModel(jax.jit(logits_fn), bounds=(0, 1))
        found = getattr(foolbox.attacks, theirs)(steps=100).run(
            model, jnp.asarray(images), foolbox.criteria.Misclassification(labels)
        )
    assert np.all(ours <= left(found) + 0.01), (ours, left(found))
