"""Evaluation: exact N, flags that belong to the example, and flags that survive."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from cat_jax import attacks
from cat_jax.attacks.named import NamedAttack
from cat_jax.data import Split
from cat_jax.evaluation.evaluator import Evaluator
from cat_jax.intervals import wilson

PGD = functools.partial(attacks.pgd, epsilon=0.1, step_size=0.05, num_steps=2)
NAMED = NamedAttack("pgd2", PGD, 0.1)
NATURAL = NamedAttack("natural", None)


class Linear(nn.Module):
    @nn.compact
    def __call__(self, images, *, train=False):
        return nn.Dense(10)(images.reshape(len(images), -1))


@pytest.fixture(scope="module")
def variables():
    return Linear().init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))


@pytest.fixture(scope="module")
def split(variables):
    """70 examples, most of which the network gets right without an attack."""
    r = np.random.default_rng(0)
    images = r.integers(0, 256, (70, 4, 4, 1)).astype(np.uint8)
    labels = np.array(jnp.argmax(Linear().apply(variables, images / 255.0), -1), np.int32)
    labels[::10] = (labels[::10] + 1) % 10
    return Split(images, labels)


def evaluator(batch_size=32, num_devices=1):
    return Evaluator(Linear(), 0, batch_size, jax.local_devices()[:num_devices])


@pytest.mark.parametrize("batch_size", [1, 7, 69, 70, 71, 500])
def test_every_example_counts_once_whatever_the_batch_size(variables, split, batch_size):
    result = evaluator(batch_size)(variables, NATURAL, split)
    assert len(result.flags) == 70
    assert result.accuracy == 63 / 70


def test_flags_depend_neither_on_batches_nor_on_devices(variables, split):
    want = evaluator(70)(variables, NAMED, split).flags
    assert 0 < want.sum() < 63, "the attack must break some and not all"
    for batch_size, num_devices in [(16, 1), (33, 4), (500, 4)]:
        found = evaluator(batch_size, num_devices)(variables, NAMED, split).flags
        np.testing.assert_array_equal(found, want)


def test_a_second_checkpoint_does_not_compile_again(variables, split):
    run = evaluator()
    run(variables, NAMED, split)
    run(jax.tree.map(lambda leaf: 2 * leaf, variables), NAMED, split)
    assert run._compiled["pgd2"]._cache_size() == 1


def test_a_stopped_evaluation_goes_on_where_it_was(variables, split, tmp_path):
    file, want = tmp_path / "flags.npz", evaluator()(variables, NAMED, split).flags
    seen = []

    def stop(count):
        seen.append(count)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluator()(variables, NAMED, split, file=file, identity="a", on_batch=stop)
    assert seen == [32, 64]
    attacked = []

    def counting(logits_fn, images, labels, keys, **kwargs):
        jax.debug.callback(lambda: attacked.append(len(images)))
        return PGD(logits_fn, images, labels, keys)

    again = NamedAttack("pgd2", counting, 0.1)
    result = evaluator()(variables, again, split, file=file, identity="a")
    jax.effects_barrier()
    np.testing.assert_array_equal(result.flags, want)
    assert attacked == [32], "two of three batches were known"
    evaluator()(variables, again, split, file=file, identity="another checkpoint")
    jax.effects_barrier()
    assert len(attacked) == 4, "flags of other weights are not used"


def test_an_attack_of_a_cascade_sees_the_survivors_alone_in_full_batches(variables, split):
    natural = evaluator()(variables, NATURAL, split)
    attacked = []

    def counting(logits_fn, images, labels, keys):
        jax.debug.callback(lambda: attacked.append(len(images)))
        return PGD(logits_fn, images, labels, keys)

    named = NamedAttack("pgd2", counting, 0.1, after="natural")
    result = evaluator()(variables, named, split, before=natural)
    jax.effects_barrier()
    assert attacked == [32, 32], "63 survivors, not 70 examples"
    np.testing.assert_array_equal(
        result.flags, natural.flags & evaluator()(variables, NAMED, split).flags
    )


def test_few_survivors_are_attacked_in_smaller_batches_of_few_shapes(variables, split):
    natural = evaluator()(variables, NATURAL, split)
    attacked = []

    def counting(logits_fn, images, labels, keys):
        attacked.append(len(images))  # While it is traced: once for each shape.
        return PGD(logits_fn, images, labels, keys)

    run = evaluator(batch_size=64, num_devices=4)
    whole = run(variables, NAMED, split).flags
    for survivors, size in [(63, 64), (33, 64), (32, 32), (31, 32), (9, 16), (3, 4), (1, 4)]:
        few = natural.flags & (np.cumsum(natural.flags) <= survivors)
        before = dataclasses.replace(natural, flags=few)
        named = NamedAttack("pgd2", counting, 0.1, after="natural")
        attacked.clear()
        result = evaluator(64, 4)(variables, named, split, before=before)
        assert attacked == [size] and result.num_attacked == survivors
        np.testing.assert_array_equal(result.flags, few & whole)


def test_a_cascade_without_survivors_is_over(variables, split):
    nobody = dataclasses.replace(evaluator()(variables, NATURAL, split), flags=np.zeros(70, bool))
    result = evaluator()(variables, NAMED, split, before=nobody)
    assert result.accuracy == 0.0 and len(result.flags) == 70
    assert result.num_attacked == 0 and result.mean_queries == 0.0


def test_damaged_flags_are_computed_again(variables, split, tmp_path):
    file = tmp_path / "flags.npz"
    want = evaluator()(variables, NAMED, split, file=file, identity="a").flags
    file.write_bytes(file.read_bytes()[:100])
    result = evaluator()(variables, NAMED, split, file=file, identity="a")
    np.testing.assert_array_equal(result.flags, want)


@pytest.mark.parametrize(
    "attack",
    [
        lambda f, x, y, k: x + 0.2,
        lambda f, x, y, k: x - jnp.minimum(0.05, x + 0.01),
        lambda f, x, y, k: x * jnp.nan,
    ],
)
def test_an_attack_that_breaks_its_rules_is_not_counted(variables, split, attack):
    with pytest.raises(RuntimeError, match="left its ball or the pixel range"):
        evaluator()(variables, NamedAttack("cheat", attack, 0.1), split)


def test_an_unclipped_attack_may_leave_the_pixel_range(variables, split):
    named = NamedAttack("free", lambda f, x, y, k: x + 0.1, 0.1, clipped=False)
    assert len(evaluator()(variables, named, split).flags) == 70


@pytest.mark.parametrize(
    "successes, trials, want",
    # Newcombe (1998), table I: intervals by the Wilson score method without correction.
    [
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
    ],
)
def test_wilson_intervals_are_the_published_ones(successes, trials, want):
    np.testing.assert_allclose(wilson(successes, trials), want, atol=5e-5)
    assert wilson(0, 0) == (0.0, 1.0)


def test_noise_differs_between_attacks_seeds_and_examples(variables, split):
    def keys_of(name, seed):
        seen = []

        def recording(logits_fn, images, labels, keys):
            jax.debug.callback(seen.append, jax.random.key_data(keys))
            return images

        run = Evaluator(Linear(), seed, 70, jax.local_devices()[:1])
        run(variables, NamedAttack(name, recording), split)
        jax.effects_barrier()
        return {tuple(key) for key in np.array(seen[0])}

    one, again = keys_of("pgd20", 0), keys_of("pgd20", 0)
    assert one == again and len(one) == 70
    assert not one & keys_of("pgd20", 1) and not one & keys_of("pgd100", 0)
