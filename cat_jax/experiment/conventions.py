"""Values of the fields on which the paper and the published code differ: `config.conventions`.

A field that is None in a config takes its value from this table. `config.recipe` chooses among
the authors' programs, because the one for MNIST differs from the one for CIFAR.
"""

from typing import Any


def _drop_epochs(*epochs: int) -> dict[str, Any]:
    return {f"{name}.drop_epochs": epochs for name in ("optimizer", "mask_optimizer")}


_PAPER = {
    "mask_net.sees": "pair",
    "method.kl_p": "calibrated",
    "method.certain": 1.0,
    "method.mask_loss_batch_norm": "inference",
    "method.closing_forward": False,
    "attack.start_radius": "epsilon",
    "attack.clip": True,
    "attack.batch_norm": "inference",
    "attack.closing_forward": False,
    "attack.warmup_epochs": 0.0,
    "validation.clip": True,
    "test.cw_random_start": False,
}
_RELEASED = {
    "mask_net.sees": "sum",
    "method.kl_p": "reference",
    "method.certain": 1.0000001,
    "method.mask_loss_batch_norm": "training",
    "method.closing_forward": True,
    "attack.start_radius": "epsilon",
    "attack.clip": True,
    "attack.batch_norm": "training",
    "attack.closing_forward": True,
    "attack.warmup_epochs": 0.0,
    "validation.clip": True,
    "test.cw_random_start": True,
}
_RELEASED_MNIST = _RELEASED | {
    "method.closing_forward": False,
    "attack.start_radius": "0.1",  # Irrespective of epsilon.
    "attack.clip": False,
    "attack.closing_forward": False,
    "validation.clip": False,
}
_RELEASED_RECIPES = {
    "cifar": _RELEASED | _drop_epochs(100, 120),
    "wide_resnet": _RELEASED | _drop_epochs(100, 110),
    "mnist": _RELEASED_MNIST | _drop_epochs(31),
}
_WARMUP_EPOCHS = {"cifar": 5.0, "wide_resnet": 5.0, "mnist": 0.5}
# By conventions, then by recipe.
CONVENTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {
        "cifar": _PAPER | _drop_epochs(100, 120),
        "wide_resnet": _PAPER | _drop_epochs(100, 120),
        "mnist": _PAPER | _drop_epochs(30),
    },
    "released": _RELEASED_RECIPES,
    "warmup": {
        recipe: values | {"attack.warmup_epochs": _WARMUP_EPOCHS[recipe]}
        for recipe, values in _RELEASED_RECIPES.items()
    },
}
RECIPES = tuple(CONVENTIONS["paper"])
FIELDS_SET = tuple(CONVENTIONS["paper"]["cifar"])  # Every other recipe sets the same fields.
