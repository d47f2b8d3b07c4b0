"""Evaluation: exact N, flags that belong to the example, and flags that survive."""

import dataclasses
import functools
import os
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compiled_names
from flax import linen as nn

from cat_jax import attacks
from cat_jax.attacks.named import NamedAttack
from cat_jax.data import Split
from cat_jax.evaluation.attacked_batch import attack_batch
from cat_jax.evaluation.evaluator import Evaluator
from cat_jax.evaluation.images import excess_of
from cat_jax.evaluation.results import Place
from cat_jax.intervals import wilson

PGD = functools.partial(attacks.pgd, epsilon=0.1, step_size=0.05, num_steps=2)
NAMED = NamedAttack("pgd2", PGD)
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
    return Evaluator(
        Linear().apply, jax.random.key(0), batch_size, jax.local_devices()[:num_devices]
    )


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
    with compiled_names() as names:
        for scale in (1, 2):
            scaled = jax.tree.map(lambda leaf, scale=scale: scale * leaf, variables)
            run(scaled, NAMED, split)
    assert names.count("jit(attack_batch)") == 1


def test_a_search_at_lower_precision_is_judged_at_full_precision(variables, split):
    """CPUs have one precision, so the program itself is looked at."""

    def precisions(attack):
        run = functools.partial(attack_batch, Linear().apply, attack, None)
        program = jax.make_jaxpr(run)(variables, jax.random.key(0), *split, np.arange(70))
        return re.findall(r"precision=\(Precision\.(\w+), ", str(program))

    named = NAMED._replace(attack=attacks.at_precision(NAMED.attack, "bfloat16"))
    *search, judge = precisions(named)
    assert set(search) == {"DEFAULT"} and judge == "HIGHEST"
    assert set(precisions(NAMED)) == {"HIGHEST"} and len(precisions(NAMED)) == len(search) + 1
    np.testing.assert_array_equal(
        evaluator()(variables, named, split).flags, evaluator()(variables, NAMED, split).flags
    )


def test_an_attack_that_reads_what_has_changed_is_compiled_again(variables, split):
    """It may be a list, an object, or a number of the function around it."""
    run, strength = evaluator(70), 0.0
    strengths = [0.0]

    def closed(logits_fn, images, labels, keys, *, epsilon):
        return images + strength * (0.5 - images)

    def listed(logits_fn, images, labels, keys, *, epsilon):
        return images + strengths[0] * (0.5 - images)

    for attack in (closed, listed):
        strength, strengths[0] = 0.0, 0.0
        named = NamedAttack("a", functools.partial(attack, epsilon=0.5))
        assert run(variables, named, split).accuracy == 63 / 70
        strength, strengths[0] = 1.0, 1.0
        assert run(variables, named, split).accuracy < 0.6, "every image is grey"


def test_attacks_of_one_name_and_other_arguments_are_two(variables, split):
    run = evaluator(70)

    def accuracy(evaluate, epsilon):
        named = NamedAttack("fgsm", functools.partial(attacks.fgsm, epsilon=epsilon))
        return evaluate(variables, named, split).accuracy

    accuracies = [accuracy(run, epsilon) for epsilon in (0.0, 0.1, 0.3)]
    assert accuracies == [accuracy(evaluator(70), epsilon) for epsilon in (0.0, 0.1, 0.3)]
    assert accuracies[0] == 63 / 70 and len(set(accuracies)) == 3


@pytest.mark.slow
def test_a_curve_falls_and_compiles_once(variables, split):
    radii = [0.0, 0.02, 0.1, 1.0]
    with compiled_names() as names:
        results = evaluator().curve(variables, NAMED, split, reversed(radii))
    assert names.count("jit(attack_batch)") == 1
    assert list(results) == radii
    accuracies = [result.accuracy for result in results.values()]
    assert accuracies == sorted(accuracies, reverse=True)
    assert accuracies[0] == 63 / 70 and 0 < accuracies[2] < accuracies[1] and accuracies[-1] == 0
    for radius, result in results.items():
        own = NamedAttack("pgd2", functools.partial(PGD, epsilon=radius, step_size=radius / 2))
        alone = evaluator()(variables, own, split).flags
        assert not np.any(result.flags & ~alone), "what one radius breaks, the curve breaks"
        assert result.conditions["epsilon"] == radius
        assert result.conditions["step_size"] == pytest.approx(radius / 2)
        smaller = [earlier["epsilon"] for earlier in result.conditions.get("after", ())]
        assert smaller == radii[: radii.index(radius)]


def test_a_stopped_evaluation_goes_on_where_it_was(variables, split, tmp_path):
    want = evaluator()(variables, NAMED, split).flags
    place = Place(tmp_path / "flags.npz", "a")
    seen = []

    def stop(count):
        seen.append(count)
        if count == 64:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluator()(variables, NAMED, split, place=place, on_batch=stop)
    assert seen == [0, 32, 64]
    attacked = []

    def counting(logits_fn, images, labels, keys, *, epsilon):
        jax.debug.callback(lambda: attacked.append(len(images)))
        return PGD(logits_fn, images, labels, keys)

    again = NamedAttack("pgd2", functools.partial(counting, epsilon=0.1))
    result = evaluator()(variables, again, split, place=place)
    jax.effects_barrier()
    np.testing.assert_array_equal(result.flags, want)
    assert attacked == [32], "two of three batches were known"
    evaluator()(variables, again, split, place=place._replace(key="another checkpoint"))
    jax.effects_barrier()
    assert len(attacked) == 4, "flags of other weights are not used"


@pytest.mark.slow
def test_an_attack_of_a_cascade_sees_the_survivors_alone_in_full_batches(variables, split):
    natural = evaluator()(variables, NATURAL, split)
    attacked = []

    def counting(logits_fn, images, labels, keys, *, epsilon):
        jax.debug.callback(lambda: attacked.append(len(images)))
        return PGD(logits_fn, images, labels, keys)

    named = NamedAttack("pgd2", functools.partial(counting, epsilon=0.1), after=NATURAL)
    result = evaluator()(variables, named, split, before=natural)
    jax.effects_barrier()
    assert attacked == [32, 32], "63 survivors, not 70 examples"
    np.testing.assert_array_equal(
        result.flags, natural.flags & evaluator()(variables, NAMED, split).flags
    )


@pytest.mark.slow
def test_few_survivors_are_attacked_in_smaller_batches_of_few_shapes(variables, split):
    natural = evaluator()(variables, NATURAL, split)
    attacked = []

    def counting(logits_fn, images, labels, keys, *, epsilon):
        attacked.append(len(images))  # While it is traced: once for each shape.
        return PGD(logits_fn, images, labels, keys)

    run = evaluator(batch_size=64, num_devices=4)
    whole = run(variables, NAMED, split).flags
    for survivors, size in [(33, 64), (32, 32), (9, 16), (1, 4)]:
        few = natural.flags & (np.cumsum(natural.flags) <= survivors)
        before = dataclasses.replace(natural, flags=few)
        named = NamedAttack("pgd2", functools.partial(counting, epsilon=0.1), after=NATURAL)
        attacked.clear()
        result = evaluator(64, 4)(variables, named, split, before=before)
        assert attacked == [size] and result.num_attacked == survivors
        np.testing.assert_array_equal(result.flags, few & whole)


def test_a_cascade_without_survivors_is_over(variables, split):
    nobody = dataclasses.replace(evaluator()(variables, NATURAL, split), flags=np.zeros(70, bool))
    result = evaluator()(variables, NAMED, split, before=nobody)
    assert result.accuracy == 0.0 and len(result.flags) == 70
    assert result.num_attacked == 0 and result.mean_queries == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["float32", "uint8"])
def test_kept_images_are_written_in_place_and_survive_a_stop(variables, split, tmp_path, keep):
    def stop(count):
        raise KeyboardInterrupt

    natural = evaluator()(variables, NATURAL, split)
    named = NamedAttack("pgd2", PGD, after=NATURAL)
    kwargs = dict(before=natural, keep=keep)
    want = evaluator()(variables, named, split, **kwargs)
    assert not isinstance(want.adversarial, np.memmap)
    place = Place(tmp_path / "flags.npz", "a", tmp_path / "images.npy")
    evaluator()(variables, named, split, before=natural, place=place)
    assert not place.images.exists()
    for _ in range(2):  # The flags are known by now, and the images are not.
        with pytest.raises(KeyboardInterrupt):
            evaluator()(variables, named, split, place=place, on_batch=stop, **kwargs)
    result = evaluator()(variables, named, split, place=place, **kwargs)
    np.testing.assert_array_equal(result.flags, want.flags)
    np.testing.assert_array_equal(np.load(place.images), want.adversarial)
    again = evaluator()(variables, named, split, place=place, on_batch=print, **kwargs)
    assert (again.seconds, again.origin) == (result.seconds, result.origin)
    place.images.unlink()
    result = evaluator()(variables, named, split, place=place, **kwargs)
    np.testing.assert_array_equal(result.adversarial, want.adversarial)


def bytes_written():
    """Bytes that this process has sent towards a disk, those of memory maps included."""
    lines = pathlib.Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["write_bytes"])


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="the system counts no bytes")
def test_bytes_written_grow_linearly_with_the_images(tmp_path):
    """Four times the images are four times the bytes, and the images are written once."""
    run, r = evaluator(batch_size=64), np.random.default_rng(0)
    variables = Linear().init(jax.random.key(0), jnp.zeros((1, 16, 16, 3)))
    cost = {}
    for number in (64, 256, 1024):  # The first compiles.
        images = r.integers(0, 256, (number, 16, 16, 3)).astype(np.uint8)
        split = Split(images, np.zeros(number, np.int32))
        place = Place(tmp_path / f"{number}.npz", "a", tmp_path / f"{number}.npy")
        before = bytes_written()
        run(variables, NAMED, split, place=place, keep="float32")
        cost[number] = bytes_written() - before
    if not cost[1024]:
        pytest.skip("this file system counts no bytes")
    size = 1024 * 16 * 16 * 3 * 4
    assert size <= cost[1024] < 1.2 * size
    assert cost[1024] < 4.5 * cost[256]


def test_damaged_flags_are_computed_again(variables, split, tmp_path):
    file = tmp_path / "flags.npz"
    place = Place(file, "a")
    want = evaluator()(variables, NAMED, split, place=place).flags
    file.write_bytes(file.read_bytes()[:100])
    result = evaluator()(variables, NAMED, split, place=place)
    np.testing.assert_array_equal(result.flags, want)


@pytest.mark.parametrize(
    "attack",
    [
        lambda f, x, y, k, *, epsilon: x + 2 * epsilon,
        lambda f, x, y, k, *, epsilon: x - jnp.minimum(epsilon / 2, x + 0.01),
        lambda f, x, y, k, *, epsilon: x * jnp.nan,
    ],
)
def test_an_attack_that_breaks_its_rules_is_not_counted(variables, split, attack):
    with pytest.raises(RuntimeError, match="left its ball or the pixel range"):
        evaluator()(variables, NamedAttack("cheat", functools.partial(attack, epsilon=0.1)), split)


def test_an_image_of_a_union_is_in_one_of_its_balls():
    """Not in the L-infinity ball of the largest radius, which contains far more."""
    balls = [{"norm": "linf", "epsilon": 0.1}, {"norm": "l1", "epsilon": 8.0}]
    conditions = {"norm": "union", "epsilon": 8.0, "attacks": balls}
    images = np.zeros((2, 8, 8, 1))
    flat, sparse = np.full_like(images[0], 0.1), np.zeros_like(images[0])
    sparse[0] = 1.0
    excess = excess_of("union", conditions, images, np.stack([flat, sparse]))
    assert abs(excess) < 1e-12
    with pytest.raises(RuntimeError, match=r"left its ball or the pixel range by 1\.00e-01"):
        excess_of("union", conditions, images, np.stack([flat, np.full_like(sparse, 0.2)]))


def test_an_unclipped_attack_may_leave_the_pixel_range(variables, split):
    def free(logits_fn, images, labels, keys, *, epsilon, pixel_range):
        return images + epsilon

    named = NamedAttack("free", functools.partial(free, epsilon=0.1, pixel_range=None))
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

        def recording(logits_fn, images, labels, keys, *, epsilon=0.0):
            jax.debug.callback(seen.append, jax.random.key_data(keys))
            return images

        run = Evaluator(Linear().apply, jax.random.key(seed), 70, jax.local_devices()[:1])
        run(variables, NamedAttack(name, recording), split)
        jax.effects_barrier()
        return {tuple(key) for key in np.array(seen[0])}

    one, again = keys_of("pgd20", 0), keys_of("pgd20", 0)
    assert one == again and len(one) == 70
    assert not one & keys_of("pgd20", 1) and not one & keys_of("pgd100", 0)
