"""Reads golden/ and rebuilds what its README makes by rule instead of storing."""

import functools
import json
import os
import pathlib

import jax
import numpy as np
import pytest

from cat_jax.weights import pytorch_names

FOLDER = pathlib.Path(
    os.environ.get("CAT_JAX_GOLDEN", pathlib.Path(__file__).parents[1] / "golden")
)


@functools.cache
def load(name):
    """(JSON or {}, arrays) of one golden file; skips the test where it is absent."""
    if not (FOLDER / f"{name}.npz").exists():
        pytest.skip(f"no {name}.npz in {FOLDER}; set CAT_JAX_GOLDEN")
    meta = FOLDER / f"{name}.json"
    return json.loads(meta.read_text()) if meta.exists() else {}, dict(
        np.load(FOLDER / f"{name}.npz")
    )


def state_dict(entries, seed):
    """The parameters by rule: one RandomState over the entries, in their order."""
    random = np.random.RandomState(seed)
    made = {}
    for name, shape, _ in entries:
        leaf = name.rsplit(".", 1)[1]
        if leaf == "num_batches_tracked":
            made[name] = np.zeros((), np.int64)
            continue
        draw = random.standard_normal(shape)
        if len(shape) > 1:
            draw *= np.sqrt(2 / np.prod(shape[1:]))
        elif leaf == "weight":
            draw = 1 + 0.1 * draw
        elif leaf == "running_var":
            draw = 1 + 0.1 * np.abs(draw)
        else:
            draw *= 0.1
        made[name] = draw
    return made


def variables(network_name, golden_name):
    """Our variables of a golden network, in float64."""
    meta, _ = load("networks")
    entries = meta[golden_name]["state_dict"]
    return jax.device_put(
        pytorch_names.from_state_dict(
            network_name, state_dict(entries, meta["_meta"]["weight_seed"])
        )
    )


def normaliser(golden_name):
    """{"mean": ..., "std": ...} of a golden network, or {}."""
    values = load("networks")[0][golden_name]["normaliser"] or {}
    return {key: tuple(value) for key, value in values.items()}


def nhwc(array):
    return np.moveaxis(array, -3, -1)


def uniform(seed, shape_nchw, low=0.0, high=1.0):
    """RandomState(seed).uniform, drawn in NCHW order, returned in NHWC."""
    return nhwc(np.random.RandomState(seed).uniform(low, high, shape_nchw))
