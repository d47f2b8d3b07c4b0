"""The order of examples: exact counts, and a function of (seed, step) alone."""

import itertools

import jax
import numpy as np
import pytest

from cat_jax.data import Clock, batch_indices, padded_batches
from cat_jax.errors import UsageError

# (examples, batch size): dividing, not dividing, one batch an epoch, batches over several epochs.
SIZES = [(12, 4), (10, 4), (7, 7), (5, 13), (1, 3), (1437, 128)]


@pytest.mark.parametrize(("num_examples", "batch_size"), SIZES)
def test_the_stream_is_whole_permutations_one_after_another(num_examples, batch_size):
    steps = Clock(num_examples, batch_size).steps_until(3)
    stream = np.concatenate(
        [batch_indices(7, step, num_examples, batch_size) for step in range(steps)]
    )
    epochs = stream[: 3 * num_examples].reshape(3, num_examples)
    np.testing.assert_array_equal(np.sort(epochs), np.tile(np.arange(num_examples), (3, 1)))


@pytest.mark.parametrize(("num_examples", "batch_size"), SIZES)
def test_every_batch_is_full(num_examples, batch_size):
    for step in range(5):
        indices = batch_indices(0, step, num_examples, batch_size)
        assert indices.shape == (batch_size,) and indices.dtype == np.int64


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = [batch_indices(seed, step, 50, 50) for seed in (0, 1) for step in (0, 1)]
    for one, other in itertools.combinations(orders, 2):
        assert (one != other).any()


def test_a_batch_depends_on_nothing_but_the_seed_and_the_step():
    forwards = [batch_indices(3, step, 10, 4) for step in range(9)]
    batch_indices(4, 100, 33, 5)
    np.random.default_rng().random()
    backwards = [batch_indices(3, step, 10, 4) for step in reversed(range(9))]
    np.testing.assert_array_equal(forwards, backwards[::-1])


def test_the_stream_does_not_depend_on_the_batch_size():
    fours = np.concatenate([batch_indices(3, step, 10, 4) for step in range(6)])
    eights = np.concatenate([batch_indices(3, step, 10, 8) for step in range(3)])
    np.testing.assert_array_equal(fours, eights)


def test_the_order_is_the_one_that_earlier_results_were_made_with():
    np.testing.assert_array_equal(batch_indices(0, 1, 10, 6), [9, 0, 8, 1, 9, 1])


def test_a_late_step_is_as_good_as_an_early_one_and_int32_steps_do_not_overflow():
    late = batch_indices(0, np.int32(2_000_000), 60_000, 4096)
    np.testing.assert_array_equal(late, batch_indices(0, 2_000_000, 60_000, 4096))
    assert Clock(60_000, 4096).epoch_of(np.int32(2_000_000)) == 2_000_000 * 4096 // 60_000


def test_the_clock_counts_as_exactly_in_a_compiled_step():
    clock = Clock(50_000, 128)
    steps = np.array([0, 390, 391, 38_281, 38_282, 39_062, 2_000_000], np.int32)
    np.testing.assert_array_equal(
        jax.jit(clock.epoch_of)(steps), [int(step) * 128 // 50_000 for step in steps]
    )
    np.testing.assert_allclose(jax.jit(clock.epochs_after)(steps), (steps + 1.0) * 128 / 50_000)
    even = Clock(50_000, 100)  # 1 / 500 is not a float: a sum of such would miss the end.
    assert [float(jax.jit(even.epochs_after)(499 + 500 * k)) for k in range(9)] == [*range(1, 10)]


def test_a_caller_cannot_change_the_order_of_later_batches():
    first = batch_indices(0, 0, 8, 8)
    kept = first.copy()
    first[:] = 0
    np.testing.assert_array_equal(batch_indices(0, 0, 8, 8), kept)


@pytest.mark.parametrize(("num_examples", "batch_size"), SIZES)
def test_the_first_step_of_an_epoch_is_the_first_that_epoch_of_counts_to_it(
    num_examples, batch_size
):
    clock = Clock(num_examples, batch_size)
    for epoch in range(4):
        first = clock.steps_until(epoch)
        assert clock.epoch_of(first) >= epoch
        assert first == 0 or clock.epoch_of(first - 1) < epoch


@pytest.mark.parametrize("batch_size", [1, 3, 8, 100])
@pytest.mark.parametrize("num_examples", [1, 2, 3, 7, 8, 9, 99, 100, 101])
def test_evaluation_sees_every_example_exactly_once_in_batches_of_one_shape(
    num_examples, batch_size
):
    seen = []
    for indices, valid in padded_batches(num_examples, batch_size):
        assert indices.shape == (batch_size,) and 1 <= valid <= batch_size
        assert (indices[valid:] == num_examples - 1).all()
        seen.extend(indices[:valid])
    assert seen == list(range(num_examples))


def test_of_no_examples_there_are_no_batches():
    assert list(padded_batches(0, 4)) == []


@pytest.mark.parametrize(("num_examples", "batch_size"), [(0, 4), (4, 0), (4, -1)])
def test_impossible_sizes_are_refused_with_their_numbers(num_examples, batch_size):
    message = f"Cannot cut {num_examples} examples into batches of {batch_size}"
    for call in (
        lambda: batch_indices(0, 0, num_examples, batch_size),
        lambda: Clock(num_examples, batch_size),
    ):
        with pytest.raises(UsageError, match=message):
            call()
    if batch_size < 1:
        with pytest.raises(UsageError, match=message):
            list(padded_batches(num_examples, batch_size))
