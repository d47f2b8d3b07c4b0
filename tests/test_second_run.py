"""A step that is computed twice has the same bits, or the run names the device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from cat_jax.errors import UsageError
from cat_jax.training.second_run import compute_twice, different_devices

DEVICES = jax.devices()[:2]
REPLICATED = NamedSharding(Mesh(np.array(DEVICES), ("devices",)), PartitionSpec())


def replicated(*copies):
    """One array whose copy on each device may be another."""
    arrays = [jax.device_put(x, device) for x, device in zip(copies, DEVICES, strict=True)]
    return jax.make_array_from_single_device_arrays(arrays[0].shape, REPLICATED, arrays)


def test_a_device_that_differs_in_one_bit_is_found():
    """Also between zeros of two signs; equal NaNs are equal."""
    x = np.float32([0.0, np.nan, 1.0])
    flipped = np.float32([-0.0, np.nan, 1.0])
    number = np.int32(3)
    tree = {"x": replicated(x, x), "n": replicated(number, number)}
    assert different_devices(tree, {**tree, "x": replicated(x, x)}) == []
    assert different_devices(tree, {**tree, "x": replicated(x, flipped)}) == [DEVICES[1]]
    both = replicated(number + 1, number + 1)
    assert different_devices(tree, {**tree, "n": both}) == DEVICES


def test_a_step_is_computed_twice_from_the_same_state_and_a_difference_stops_the_run():
    calls = []

    def step(state, batch, key):
        calls.append(np.array(state["w"]))
        wrong = np.float32(1e-6) if is_broken and len(calls) % 2 == 0 else np.float32(0)
        new = replicated(calls[-1] + 1, calls[-1] + 1 + wrong)
        state["w"].delete()  # As a donated state is.
        return {"w": new}, {"loss": jnp.float32(0)}

    for is_broken in (False, True):
        calls.clear()
        state = {"w": replicated(np.float32([1, 2]), np.float32([1, 2]))}
        if is_broken:
            with pytest.raises(UsageError, match=f"Step 7 .* on cpu {DEVICES[1].id}. .*--determin"):
                compute_twice(step, state, {}, None, 7)
        else:
            new, _ = compute_twice(step, state, {}, None, 7)
            np.testing.assert_array_equal(new["w"], [2, 3])
        assert len(calls) == 2
        np.testing.assert_array_equal(*calls)
