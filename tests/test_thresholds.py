"""Thresholds found without sorting, beside those of a sort."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cat_jax.attacks.thresholds import fill_largest_first, largest_float


def values_with_ties(dtype, size=50, seed=0):
    values = np.random.default_rng(seed).exponential(size=size)
    values[:5], values[5:12] = 0.0, values[12]
    values[-1] *= 1e30
    return np.asarray(jnp.asarray(values, dtype))


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16"])
def test_the_kth_largest_value_is_that_of_a_sort(name, request):
    if name == "float64":
        request.getfixturevalue("float64")
    values = values_with_ties(name)
    found = jax.jit(
        jax.vmap(lambda k: largest_float(lambda least: jnp.sum(values >= least) >= k, values.dtype))
    )(np.arange(1, len(values) + 1))
    assert found.dtype == values.dtype
    # Instead of 0 it may be the largest of the subnormal numbers, which XLA:CPU takes for 0.
    tiny = float(jnp.finfo(name).tiny)
    np.testing.assert_allclose(
        np.float64(found), np.float64(np.sort(values)[::-1]), rtol=0, atol=tiny
    )


def test_where_a_condition_holds_everywhere_or_nowhere():
    assert largest_float(lambda x: x < 0, np.float32) == 0
    assert largest_float(lambda x: x <= jnp.inf, np.float32) == np.inf


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99, 1.0, 1.5])
def test_entries_are_filled_in_the_order_of_a_stable_sort(share, float64):
    priority = values_with_ties("float64")
    capacity = np.random.default_rng(1).uniform(size=priority.size)
    total = share * capacity.sum()
    order = np.argsort(-priority, kind="stable")
    before = np.cumsum(capacity[order]) - capacity[order]
    want = np.zeros_like(priority)
    want[order] = np.clip(total - before, 0.0, capacity[order])
    got = fill_largest_first(priority, capacity, total)
    np.testing.assert_allclose(got, want, atol=1e-12)


def test_an_entry_without_a_limit_takes_all():
    capacity = np.array([1.0, np.inf, np.inf, 1.0], np.float32)
    got = fill_largest_first(np.array([1.0, 2.0, 2.0, 3.0], np.float32), capacity, np.float32(5.0))
    np.testing.assert_allclose(got, [0.0, 4.0, 0.0, 1.0], rtol=1e-6)
