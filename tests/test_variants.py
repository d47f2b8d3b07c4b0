"""Every variant and config: one step does not depend on the devices, nor on an interruption.

With the config's own method, attack, losses, schedules, augmentation and optimizers, and in place
of its networks small ones with batch norm; in float64, where rounding flips no sign of an attack.
The networks themselves are held against golden numbers, over devices too.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_networks
from config_files import MODULES, SPECS, VARIANTS

from cat_jax.experiment import settings
from cat_jax.experiment.experiment import build_experiment
from cat_jax.runtime import processes

# A mask network, the closing forward and an average in one.
FAST = ("digits", "cat_cent")
# Configs share the variants of configs/default.py and differ in numbers alone: each variant runs in
# the one that has most of them, and each other config with CAT_cw and the variants of its own.
MOST = {variant for name, variant in VARIANTS if name == "preact_cifar10"}
OWN = ("awp_cifar10", "generated_cifar10")
RUNS = [
    (name, variant)
    for name, variant in VARIANTS
    if name in ("preact_cifar10", *OWN) or variant == "cat_cw" or variant not in MOST
]


def small(config, num_devices):
    """The experiment of `config` on small networks."""
    config.classifier.update(name=tiny_networks.BIASED, mean=(), std=())
    if config.mask_net.name != "OnesMask":
        config.mask_net.name = tiny_networks.MASK
    config.batch_size, config.attack.num_steps = 8, 2
    config.awp.warmup_epochs = 0  # So that the first steps have it.
    config.average.update(kind="moving", decay=0.5)
    spec = SPECS[config.dataset if config.dataset in SPECS else "preact_cifar10"]
    spec = spec._replace(image_shape=(8, 8, spec.image_shape[-1]), num_train=64)
    config.num_validation = 0
    return build_experiment(settings.resolve(config), spec, jax.local_devices()[:num_devices]), spec


def batch(spec, step, num_devices):
    r = np.random.default_rng(step)

    def split(x):
        return x.reshape(num_devices, -1, *x.shape[1:])

    return {
        "image": split(r.uniform(size=(8, *spec.image_shape))),
        "label": split(np.array([1, 0, 1, 2, 1, 1, 0, 1])),
    }


def to_float64(tree):
    return jax.tree.map(
        lambda x: x.astype(float) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree
    )


def with_recipe_parts(config):
    """The config with every part of a recipe that acts within a step."""
    config.update_from_flattened_dict(
        {"cutmix": 1.0, "erasing": 0.5, "augment": "crop_flip", "method.label_smoothing": 0.1}
        | {"method.grad_align": 0.2}
        | {"attack.warmup_epochs": 1.0, "optimizer.warmup_epochs": 1.0, "optimizer.max_norm": 1.0}
        | {"optimizer.nesterov": True, "average.warmup": True}
    )
    return config


@pytest.mark.parametrize(
    "name, variant",
    [
        pytest.param(name, variant, marks=() if (name, variant) == FAST else pytest.mark.slow)
        for name, variant in [FAST, ("preact_cifar10", "every part"), *RUNS]
    ],
)
def test_a_step_depends_neither_on_the_devices_nor_on_an_interruption(float64, name, variant):
    ends = []
    for num_devices in (1, 4):
        parts = variant == "every part"
        config = MODULES[name].get_config("cat_cw" if parts else variant)
        made, spec = small(with_recipe_parts(config) if parts else config, num_devices)
        devices, key = jax.local_devices()[:num_devices], jax.random.key(1)
        state = processes.replicate(to_float64(made.init()), devices)
        start = jax.device_get(state)
        state, _ = made.step_fn(state, batch(spec, 0, num_devices), key)
        between = jax.device_get(state)
        ends.append(jax.device_get(made.step_fn(state, batch(spec, 1, num_devices), key)))
    again = processes.replicate(between, devices)
    resumed = made.step_fn(again, batch(spec, 1, num_devices), key)
    chex.assert_trees_all_equal(jax.device_get(resumed), ends[1])
    chex.assert_trees_all_close(*ends, rtol=1e-8, atol=1e-8)
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(initial=0), start, between)
    assert min(jax.tree.leaves(moved.classifier.params)) > 0
    assert min(jax.tree.leaves(moved.average)) > 0
