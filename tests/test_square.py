"""Square attack: a replay of every query, the windows, the budget, the keys, published results."""

import functools
import itertools

import golden
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compiled_names
from golden_attacks import setting
from jax.tree_util import Partial
from slow_cases import slow

from cat_jax.attacks.square import (
    BREAKPOINTS,
    last_proposals,
    square,
    square_with_queries,
    window_sides,
)
from cat_jax.attacks.square_search import propose
from cat_jax.errors import UsageError
from cat_jax.types import DEVICES

KEY = jax.random.key(0)
KEYS = jax.random.split(jax.random.key(1), 16)
EPSILON = 16 / 256
SEARCH = functools.partial(
    square_with_queries, epsilon=EPSILON, num_queries=60, rescale_schedule=True
)


def whole_numbers(weights, images):
    """A net without rounding errors, so that its logits do not depend on the batch."""
    hidden = jnp.maximum((256 * images).reshape(len(images), -1) @ weights[0], 0)
    return hidden @ weights[1]


@pytest.fixture(scope="module")
def logits_fn():
    r = np.random.default_rng(1)
    shapes = (108, 16), (16, 5)
    return Partial(whole_numbers, [jnp.asarray(r.integers(-2, 3, s), jnp.float32) for s in shapes])


@pytest.fixture(scope="module")
def batch(logits_fn):
    """Images of whole 256ths and the predictions for them, but for the last two."""
    images = np.random.default_rng(0).integers(0, 257, (16, 6, 6, 3)) / np.float32(256)
    labels = np.array(logits_fn(images).argmax(-1), np.int32)
    labels[-2:] = (labels[-2:] + 1) % 5
    return images, labels


@pytest.fixture(scope="module")
def whole(batch, logits_fn):
    """What the search finds for the batch in one piece, in float32, with a key for each example."""
    return SEARCH(logits_fn, *batch, KEYS)


@pytest.fixture
def recorded(logits_fn):
    """(a net, the batches that it was asked about)."""
    asked = []

    def recording(images):
        jax.debug.callback(lambda x: asked.append(np.array(x)), images, ordered=True)
        return logits_fn(images)

    return recording, asked


def margins(logits_fn, images, labels):
    logits = np.array(logits_fn(images))
    true = logits[np.arange(len(labels)), labels]
    logits[np.arange(len(labels)), labels] = -np.inf
    return logits.max(-1) - true


def extent(changed):
    """The larger side of the smallest box around what is True in [H, W, C]."""
    places = np.argwhere(changed.any(-1))
    return 0 if not len(places) else (np.ptp(places, axis=0) + 1).max()


@pytest.mark.slow
def test_a_replay_of_every_query_finds_the_same(batch, logits_fn, recorded):
    """What was asked, image by image, and what the algorithm of the paper makes of it."""
    images, labels = batch
    recording, asked = recorded
    found = jax.device_get(SEARCH(recording, images, labels, KEY))
    jax.effects_barrier()
    natural, start, *proposals = asked
    np.testing.assert_array_equal(natural, images)
    assert len(proposals) == 59
    low, high = np.clip(images - EPSILON, 0, 1), np.clip(images + EPSILON, 0, 1)
    assert ((start == low) | (start == high)).all()
    upper = start == high
    np.testing.assert_array_equal(upper, np.broadcast_to(upper[:, :1], upper.shape))

    wrong = [np.array(logits_fn(x).argmax(-1) != labels) for x in asked]
    best, current = margins(logits_fn, start, labels), start.copy()
    fooled, queries = wrong[0] | wrong[1], np.where(wrong[0], 0, 1)
    sides, last = window_sides(0.8, 6, 6), last_proposals(60, True)
    widest = []
    for i, candidate in enumerate(proposals):
        side = sides[sum(i > end for end in last)]
        assert ((candidate == low) | (candidate == high)).all()
        extents = [extent(a != b) for a, b in zip(candidate, current, strict=True)]
        assert 0 < min(extents) and max(extents) <= side
        widest.append(max(extents) == side)
        margin = margins(logits_fn, candidate, labels)
        accepted = ~fooled & ((margin > best) | wrong[i + 2])
        queries += ~fooled
        current[accepted], best[accepted] = candidate[accepted], margin[accepted]
        fooled |= wrong[i + 2]
    assert all(widest), "a window of the full side occurs in each batch of proposals"

    assert (queries[-2:] == 0).all() and 1 in queries and 60 in queries
    assert len(set(queries)) > 5, "the searches should not all be of one length"
    np.testing.assert_array_equal(found.fooled, fooled)
    np.testing.assert_array_equal(found.queries, queries)
    kept = (queries == 0) | ~fooled
    want = np.where(kept.reshape(-1, 1, 1, 1), images, current)
    np.testing.assert_array_equal(found.adversarial, want)


def test_the_schedule_is_the_published_one():
    assert window_sides(0.8, 32, 32) == [29, 20, 14, 10, 7, 5, 4, 3, 2, 1]
    assert window_sides(1.0, 4, 9) == [4, 4, 3, 2, 2, 1, 1, 1, 1, 1]
    assert last_proposals(5000, False) == list(BREAKPOINTS)
    assert last_proposals(10_000, True) == list(BREAKPOINTS)
    assert last_proposals(5000, True) == [5, 25, 100, 250, 500, 1000, 2000, 3000, 4000]
    assert last_proposals(500, True) == [0, 2, 10, 25, 50, 100, 200, 300, 400]
    assert last_proposals(30_000, True)[:2] == [32, 152]  # 32 of 30 000 is 10 of 10 000, in full.


@pytest.mark.slow
@pytest.mark.parametrize("side", [1, 3, 5])
def test_a_proposal_is_one_square_at_any_place(side):
    keys = jax.random.split(jax.random.key(side), 1000)
    black = jnp.zeros((5, 7, 1), bool)
    found = jax.vmap(propose, (0, None, None))(keys, black, jnp.int32(side))[..., 0]
    windows = {
        np.array(x).tobytes()
        for row in range(5 - side + 1)
        for column in range(7 - side + 1)
        for x in [np.zeros((5, 7), bool)]
        if not x[row : row + side, column : column + side].fill(True)
    }
    assert {np.array(x).tobytes() for x in found} == windows


@pytest.mark.slow
@pytest.mark.parametrize("one_colour", [True, False])
def test_the_colours_that_change_something_are_equally_likely(one_colour):
    corner = np.broadcast_to([True, False, True], (2, 2, 3)).copy()
    corner[0, 0] ^= not one_colour
    keys = jax.random.split(KEY, 8000)
    found = np.array(jax.vmap(propose, (0, None, None))(keys, jnp.asarray(corner), 2))
    assert (found == found[:, :1, :1]).all()
    counts = np.bincount(found[:, 0, 0] @ [4, 2, 1], minlength=8)
    if one_colour:
        assert counts[0b101] == 0
        counts = np.delete(counts, 0b101)
    assert np.abs(counts / 8000 - 1 / len(counts)).max() < 0.015


@pytest.mark.slow
@pytest.mark.parametrize("num_queries", [1, 7])
def test_a_model_that_cannot_be_fooled_costs_the_budget_and_is_asked_no_more(num_queries):
    asked = []

    def firm(images):
        jax.debug.callback(lambda _: asked.append(1), images[0, 0, 0, 0], ordered=True)
        return jnp.zeros((len(images), 3)).at[:, 1].set(1.0)

    images = jnp.full((4, 5, 5, 1), 0.5)
    found = SEARCH(firm, images, jnp.array([1, 1, 1, 0]), KEY, num_queries=num_queries)
    np.testing.assert_array_equal(found.queries, [num_queries] * 3 + [0])
    np.testing.assert_array_equal(found.fooled, [False] * 3 + [True])
    np.testing.assert_array_equal(found.adversarial, images)
    jax.effects_barrier()
    assert len(asked) == 1 + num_queries


@pytest.mark.slow
def test_images_wrong_from_the_start_end_the_search(batch, recorded):
    images, labels = batch
    found = SEARCH(recorded[0], images[-2:], labels[-2:], KEY)
    np.testing.assert_array_equal(found.adversarial, images[-2:])
    np.testing.assert_array_equal(found.queries, [0, 0])
    jax.effects_barrier()
    assert found.fooled.all() and len(recorded[1]) == 1


@pytest.mark.parametrize(
    "pixel_range, epsilon",
    [((0.0, 1.0), 0.1), slow((0.0, 1.0), 8 / 255), slow(None, 0.1), (None, 8 / 255)],
)
def test_square_stays_in_the_ball_and_in_the_pixel_range(batch, logits_fn, epsilon, pixel_range):
    images, labels = batch
    found = SEARCH(logits_fn, images, labels, KEY, epsilon=epsilon, pixel_range=pixel_range)
    assert np.abs(found.adversarial - images).max() <= epsilon + 1e-6
    assert pixel_range is None or (found.adversarial.min() >= 0 and found.adversarial.max() <= 1)
    moved = np.abs(found.adversarial - images).max((1, 2, 3)) > 0
    np.testing.assert_array_equal(moved, found.fooled & (found.queries > 0))
    np.testing.assert_array_equal(found.fooled, logits_fn(found.adversarial).argmax(-1) != labels)
    hyper = dict(epsilon=epsilon, num_queries=60, rescale_schedule=True, pixel_range=pixel_range)
    np.testing.assert_array_equal(
        square(logits_fn, images, labels, KEY, **hyper), found.adversarial
    )


@pytest.mark.slow
def test_a_linear_model_is_fooled_where_its_boundary_is_in_the_ball():
    """Within epsilon * ||w||_1: the search finds the best corner, and nothing beyond it."""
    weights = jax.random.normal(jax.random.key(3), (16, 2))
    images = np.random.default_rng(0).uniform(0.3, 0.7, (64, 4, 4, 1)).astype(np.float32)

    def linear(x):
        return (x - 0.5).reshape(len(x), -1) @ weights

    logits = linear(images)
    distance = np.abs(logits[:, 0] - logits[:, 1]) / np.abs(weights[:, 0] - weights[:, 1]).sum()
    epsilon = float(np.median(distance))
    found = SEARCH(linear, images, logits.argmax(-1), KEY, epsilon=epsilon, num_queries=500)
    np.testing.assert_array_equal(found.fooled, distance < epsilon)
    assert 0 < np.sum(distance < epsilon) < 64


def check_same(found, want, order=slice(None)):
    for a, b in zip(found, want, strict=True):
        np.testing.assert_array_equal(a, b[order])


def test_a_search_belongs_to_the_example_and_not_to_its_batch(batch, logits_fn, whole):
    images, labels = batch
    for order in (np.random.default_rng(2).permutation(16), np.array([5, 2, 13])):
        part = SEARCH(logits_fn, images[order], labels[order], KEYS[order])
        check_same(part, whole, order)
    one_key = SEARCH(logits_fn, images, labels, KEY)
    check_same(SEARCH(logits_fn, images[:3], labels[:3], KEY), one_key, slice(3))
    assert (one_key.queries != whole.queries).any(), "other keys, another search"


@pytest.mark.slow
def test_a_radius_for_each_example(batch, logits_fn):
    images, labels = batch
    radii = np.where(np.arange(16) % 2, 0.125, 0.0625).astype(np.float32)
    both = SEARCH(logits_fn, images, labels, KEYS, epsilon=radii.reshape(-1, 1, 1, 1))
    for radius in (0.125, 0.0625):
        alone = SEARCH(logits_fn, images, labels, KEYS, epsilon=radius)
        check_same([a[radii == radius] for a in alone], both, radii == radius)


def test_more_queries_are_never_worse_and_share_one_compilation(batch, logits_fn):

    def another(weights, images):  # Compiled in this test.
        return whole_numbers(weights, images)

    def search(num_queries, weights=logits_fn.args[0]):
        arguments = dict(num_queries=num_queries, rescale_schedule=False)
        return SEARCH(Partial(another, weights), *batch, KEY, **arguments)

    with compiled_names() as once:
        found = [search(1)]
    with compiled_names() as again:
        found += [search(num_queries) for num_queries in (5, 20, 100)]
        search(60, [np.asarray(w) * 2 for w in logits_fn.args[0]])
    assert once and not again
    for few, many in itertools.pairwise(found):
        assert (few.fooled <= many.fooled).all()
        check_same([a[few.fooled] for a in few], many, few.fooled)
    counts = [int(f.fooled.sum()) for f in found]
    assert counts[0] < counts[-1] < 16


@pytest.mark.slow
def test_the_search_splits_over_devices_by_the_sharding_of_its_input(batch, logits_fn, whole):
    mesh = jax.sharding.Mesh(np.array(jax.devices()), (DEVICES,))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(DEVICES))
    shared = SEARCH(logits_fn, *jax.device_put(batch, split), KEYS)
    assert len(shared.adversarial.sharding.device_set) == 4
    check_same(shared, whole)


@pytest.mark.parametrize("num_keys", [slow(None), 16])
def test_square_uses_no_key_twice(batch, logits_fn, num_keys):
    with jax.debug_key_reuse(True):
        key = jax.random.key(2) if num_keys is None else jax.random.split(jax.random.key(2), 16)
        SEARCH(logits_fn, *batch, key, num_queries=3)


@pytest.mark.slow
def test_no_gradient_flows_through_the_search(batch, logits_fn):
    images, labels = batch

    @jax.jit
    def total(images, weights):
        found = SEARCH(Partial(whole_numbers, weights), images, labels, KEY, num_queries=3)
        return found.adversarial.sum()

    gradients = jax.grad(total, (0, 1))(images, logits_fn.args[0])
    assert all((g == 0).all() for g in jax.tree.leaves(gradients))


@pytest.mark.slow
def test_square_follows_the_dtype_of_the_images(whole, float64, batch, logits_fn):
    images, labels = batch
    double = SEARCH(logits_fn, images.astype(np.float64), labels, KEYS)
    assert double.adversarial.dtype == "float64" and double.queries.dtype == "int32"
    check_same(double, whole)


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(epsilon=8), r"epsilon=8; expected \[0, 1\]"),
        (dict(images=np.full((2, 3, 3, 1), 2.0, np.float32)), "images span"),
        (dict(labels=np.array([0, 3])), "labels span"),
        (dict(num_queries=0), "num_queries=0; expected at least 1"),
        (dict(initial_share=0.0), r"initial_share=0.0; expected \(0, 1\]"),
        (dict(initial_share=80), r"initial_share=80; expected \(0, 1\]"),
        (dict(images=np.zeros((2, 3, 3, 31), np.float32)), "31 channels; expected at most 30"),
    ],
)
def test_what_square_cannot_mean_is_refused(change, message):
    call = dict(images=np.zeros((2, 3, 3, 1), np.float32), labels=np.array([0, 1]), epsilon=0.1)
    with pytest.raises(UsageError, match=message) as error:
        square(lambda x: jnp.zeros((len(x), 3)), key=KEY, **(call | change))
    assert "\n" not in str(error.value)


def golden_means(net, rescaled):
    """{epsilon: mean number of correct of 64 over the seeds}: AutoAttack's, the original code's."""
    meta, _ = golden.load("attacks")

    def means(results):
        assert all(r["queries"] == 500 for r in results)
        return {r["eps"]: np.mean(r["correct_of_64"]) for r in results}

    shared = [r for r in meta[net]["square"]["results"] if r["rescaled_schedule"] == rescaled]
    original = [r for r in meta["square_second_implementation"]["results"] if r["net"] == net]
    return means(shared), means(original) if rescaled else {}


def check_golden(net, rescaled, num_radii, seeds):
    """All radii and seeds in one batch: each example has its own key and radius.

    The original code, which always rescales, is the same algorithm. AutoAttack's windows are
    shared: its means are up to 4 of 64 above the original's.
    """
    logits_fn, _, _, _, arrays = setting(net, "float32")
    shape = (64, 1, 28, 28) if net == "mnist" else (64, 3, 32, 32)
    seed = golden.load("attacks")[0]["_meta"]["square_input_seed"]
    images = golden.uniform(seed, shape).astype(np.float32)
    shared, original = golden_means(net, rescaled)
    radii = sorted(shared)[-num_radii:]
    cases = [(epsilon, seed) for epsilon in radii for seed in seeds]
    found = square_with_queries(
        logits_fn,
        np.tile(images, (len(cases), 1, 1, 1)),
        np.tile(arrays["square_labels"], len(cases)),
        jnp.concatenate([jax.random.split(jax.random.key(seed), 64) for _, seed in cases]),
        epsilon=np.repeat([e for e, _ in cases], 64).astype(np.float32).reshape(-1, 1, 1, 1),
        num_queries=500,
        rescale_schedule=rescaled,
    )
    assert (found.queries > 0).all(), "golden's labels are the predictions"
    correct = 64 - np.array(found.fooled).reshape(len(radii), -1, 64).sum(-1)
    for epsilon, counts in zip(radii, correct, strict=True):
        print(net, rescaled, epsilon, counts, shared[epsilon], original.get(epsilon))
        if rescaled:
            assert abs(counts.mean() - original[epsilon]) <= 2
            assert counts.mean() <= shared[epsilon] + 1
        else:
            assert abs(counts.mean() - shared[epsilon]) <= 3


@pytest.mark.slow
def test_square_reaches_the_published_accuracy_golden():
    check_golden("mnist", True, num_radii=1, seeds=[0])


@pytest.mark.slow
@pytest.mark.parametrize("rescaled", [True, False])
@pytest.mark.parametrize("net", ["mnist", "small"])
def test_square_reaches_every_published_accuracy_golden(net, rescaled):
    check_golden(net, rescaled, num_radii=3, seeds=[0, 1, 2])
