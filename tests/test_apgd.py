"""Auto-PGD: golden/attacks, the corner of a linear model, the ball, batches, restarts, targets."""

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

from cat_jax import attacks, losses, objectives
from cat_jax.attacks.apgd import apgd, apgd_t, checked_apgd
from cat_jax.attacks.apgd_losses import adversarial_logit_ratio, targeted_loss
from cat_jax.attacks.apgd_runs import window_lengths
from cat_jax.attacks.targets import likeliest_wrong
from cat_jax.errors import UsageError
from cat_jax.types import DEVICES, Views

KEY = jax.random.key(0)
LOSSES = {"ce": objectives.adversarial_cross_entropy, "dlr": adversarial_logit_ratio, "t": None}


def two_layers(weights, images):
    hidden = jnp.tanh(images.reshape(len(images), -1) @ weights[0])
    return hidden @ weights[1]


def problem(num_classes=10, num_wrong=0):
    """(logits_fn, 64 images, labels); the first `num_wrong` labels are not the predictions."""
    r = np.random.default_rng(0)
    images = r.uniform(size=(64, 4, 4, 3))
    weights = r.normal(size=(48, 16)), r.normal(size=(16, num_classes))
    logits_fn = Partial(two_layers, jax.device_put(weights))
    labels = np.array(logits_fn(images).argmax(-1), np.int32)
    labels[:num_wrong] = (labels[:num_wrong] + 1) % num_classes
    return logits_fn, images, labels


def wrong(logits_fn, images, labels):
    return np.asarray(logits_fn(jnp.asarray(images)).argmax(-1) != labels)


# Tests share these settings, with float64 and KEYS, so that each is compiled once.
ATTACKS = {
    "ce": functools.partial(apgd, epsilon=0.03, num_steps=20),
    "dlr": functools.partial(apgd, epsilon=0.03, num_steps=20, loss=adversarial_logit_ratio),
    "t": functools.partial(apgd_t, epsilon=0.03, num_steps=20, num_targets=3),
}
KEYS = jax.random.split(KEY, 64)


@pytest.fixture(params=ATTACKS)
def attack(request):
    return ATTACKS[request.param]


def golden_starts(images, epsilon, num_runs):
    """The stored draws: the first ones for targets, the last one for the attacks without."""
    batch, height, width, channels = images.shape
    seed = golden.load("attacks")[0]["_meta"]["apgd_start_seed"]
    noise = golden.uniform(seed, (10, batch, channels, height, width), -1.0, 1.0)
    noise = noise[:num_runs] if num_runs > 1 else noise[9:]
    return images[None] + epsilon * noise / np.abs(noise).max((2, 3, 4), keepdims=True)


FAST = [("float64", "ce", "mnist")]
GOLDEN = [
    pytest.param(*case, marks=() if case in FAST else pytest.mark.slow)
    for case in itertools.product(("float64", "float32"), ("ce", "dlr", "t"), ("mnist", "small"))
]


@pytest.mark.parametrize("dtype, kind, net", GOLDEN, indirect=["dtype"])
def test_apgd_golden(dtype, kind, net):
    """Float64: points, flags, best losses and their points. Float32: points of "ce", flags."""
    logits_fn, images, labels, info, arrays = setting(net, dtype)
    epsilon, name = info["autoattack_eps"], f"apgd_{kind}_f{dtype[-2:]}"
    start = golden_starts(images, epsilon, 9 if kind == "t" else 1)
    hyper = dict(epsilon=epsilon, num_steps=100, num_restarts=1, loss=LOSSES[kind], start=start)
    hyper |= dict(num_targets=9) if kind == "t" else {}
    found = checked_apgd(logits_fn, images, labels, KEY, **hyper)
    assert found.adversarial.dtype == dtype
    np.testing.assert_array_equal(~found.fooled, arrays[f"{name}_correct_after"])
    np.testing.assert_array_equal(wrong(logits_fn, found.adversarial, labels), found.fooled)
    if f"{name}_adv" in arrays:
        difference = np.abs(found.adversarial - golden.nhwc(arrays[f"{name}_adv"]))
        if dtype == "float64":
            assert difference.max() <= 1e-9
        else:
            assert np.mean(difference <= 1e-5) >= 0.99
    if dtype == "float64":
        best_loss = np.full(len(labels), -np.inf)
        for run in info["autoattack"][name]["runs"]:  # The last one of each example counts.
            best_loss[run["examples"]] = run["best_loss"]
        np.testing.assert_allclose(found.best_loss, best_loss, rtol=0, atol=1e-9)
    if f"{name}_highest_loss_point" in arrays:
        point = found.best_point[arrays[f"{name}_examples"]]
        want = golden.nhwc(arrays[f"{name}_highest_loss_point"])
        np.testing.assert_allclose(point, want, rtol=0, atol=1e-9)


@pytest.mark.parametrize("net", ["small", "mnist"])
def test_targets_are_ranked_golden(float64, net):
    logits_fn, images, labels, info, _ = setting(net, "float64")
    targets = likeliest_wrong(logits_fn(images), labels, 9)
    for run, of_run in zip(info["autoattack"]["apgd_t_f64"]["runs"], targets, strict=True):
        np.testing.assert_array_equal(of_run[np.array(run["examples"])], run["targets"])


def test_checkpoints_come_ever_closer_together():
    assert np.flatnonzero(window_lengths(100)).tolist() == [22, 41, 57, 70, 80, 87, 93, 99]
    assert window_lengths(100)[[22, 41, 57, 93, 99]].tolist() == [22, 19, 16, 6, 6]
    assert np.flatnonzero(window_lengths(20)).tolist() == [4, 7, 9, 10, *range(11, 21)]
    assert window_lengths(1).tolist() == [0, 1] and window_lengths(0).tolist() == [0]


def test_apgd_reaches_the_corner_of_the_ball_for_a_linear_model():
    images = np.random.default_rng(0).uniform(0.2, 0.8, (8, 4, 4, 3)).astype(np.float32)
    weights = jax.random.normal(jax.random.key(3), (48, 2))
    linear = Partial(lambda w, x: (x - 0.5).reshape(len(x), -1) @ w, weights)
    labels = linear(images).argmax(-1)
    uphill = jnp.sign((weights[:, 1 - labels] - weights[:, labels]).T).reshape(images.shape)
    corner = images + 0.05 * uphill
    hyper = dict(epsilon=0.05, num_steps=10, num_restarts=1)
    found = checked_apgd(linear, images, labels, KEY, loss=LOSSES["ce"], **hyper)
    np.testing.assert_allclose(found.best_point, corner, atol=1e-6)
    assert 0 < found.fooled.sum() < 8, "both cases occur"
    want = np.where(found.fooled.reshape(-1, 1, 1, 1), corner, images)
    np.testing.assert_allclose(found.adversarial, want, atol=1e-6)


@pytest.mark.parametrize("pixel_range", [(0.0, 1.0), slow(None)])
def test_apgd_stays_in_the_ball_and_in_the_pixel_range(float64, pixel_range):
    logits_fn, images, labels = problem()
    images = np.round(images)
    for attack in [ATTACKS["ce"], ATTACKS["t"]][: 2 if pixel_range else 1]:
        found = attack(logits_fn, images, labels, KEYS, epsilon=0.1, pixel_range=pixel_range)
        np.testing.assert_allclose(np.abs(found - images).max(), 0.1, atol=1e-9)
        assert (found.min() >= 0 and found.max() <= 1) == (pixel_range is not None)


def test_a_start_is_moved_into_the_ball_and_the_pixel_range(float64):
    logits_fn, images, labels = problem()
    stays = dict(num_steps=1, loss=objectives.no_loss)  # Without a gradient.
    found = attacks.apgd(logits_fn, images, labels, KEY, epsilon=0.03, start=images + 3.0, **stays)
    ends = np.clip(images + 0.03, 0, 1)
    fooled = wrong(logits_fn, ends, labels).reshape(-1, 1, 1, 1)
    assert 0 < fooled.sum() < len(labels)
    np.testing.assert_allclose(found, np.where(fooled, ends, images), rtol=0, atol=1e-12)


def test_what_is_never_fooled_and_what_is_wrong_from_the_start_is_unchanged(attack, float64):
    logits_fn, images, labels = problem(num_wrong=4)
    found = np.asarray(attack(logits_fn, images, labels, KEYS))
    fooled = wrong(logits_fn, found, labels)
    assert 4 < fooled.sum() < len(labels), "all three cases occur"
    moved = np.abs(found - images).max((1, 2, 3)) > 0
    np.testing.assert_array_equal(moved, fooled & (np.arange(len(labels)) >= 4))
    none = attack(logits_fn, images, labels, KEYS, epsilon=0.0)
    np.testing.assert_array_equal(none, images)


def test_permuting_the_batch_permutes_the_output(attack, float64):
    logits_fn, images, labels = problem(num_wrong=4)
    order = np.random.default_rng(1).permutation(64)
    whole = attack(logits_fn, images, labels, KEYS)
    permuted = attack(logits_fn, images[order], labels[order], KEYS[order])
    np.testing.assert_allclose(permuted, whole[order], rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ce", "t"])
def test_splitting_the_batch_changes_nothing(kind, float64):
    logits_fn, images, labels = problem(num_wrong=4)
    whole = ATTACKS[kind](logits_fn, images, labels, KEYS)
    for start in range(0, 64, 16):
        part = slice(start, start + 16)
        found = ATTACKS[kind](logits_fn, images[part], labels[part], KEYS[part])
        np.testing.assert_allclose(found, whole[part], rtol=0, atol=1e-12)


@pytest.mark.slow
def test_apgd_splits_over_devices_by_the_sharding_of_its_input(float64):
    logits_fn, images, labels = problem()
    mesh = jax.sharding.Mesh(np.array(jax.devices()), (DEVICES,))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(DEVICES))
    shared = ATTACKS["ce"](logits_fn, *jax.device_put((images, labels), split), KEYS)
    assert len(shared.sharding.device_set) == 4
    np.testing.assert_allclose(shared, ATTACKS["ce"](logits_fn, images, labels, KEYS), atol=1e-9)


@pytest.mark.slow
def test_apgd_is_at_least_as_strong_as_pgd(float64):
    """With equal steps, and PGD's best of three step sizes."""
    logits_fn, images, labels = problem()
    for epsilon in (0.015, 0.02, 0.03):
        hyper = dict(epsilon=epsilon, num_steps=20)
        sizes = [epsilon / 10, epsilon / 4, epsilon]
        points = [attacks.pgd(logits_fn, images, labels, KEYS, step_size=a, **hyper) for a in sizes]
        by_pgd = max(wrong(logits_fn, x, labels).sum() for x in points)
        hyper |= dict(num_restarts=1, loss=LOSSES["ce"])
        found = checked_apgd(logits_fn, images, labels, KEYS, **hyper)
        assert 0 < by_pgd <= found.fooled.sum() < len(labels)
        ends = [losses.cross_entropy(logits_fn(x), labels) for x in points]
        assert found.best_loss.mean() > 0.999 * max(x.mean() for x in ends)


@pytest.mark.slow
def test_restarts_never_lose_a_success_and_use_other_starts(float64):
    logits_fn, images, labels = problem()
    hyper = dict(epsilon=0.02, num_steps=1)
    points = [
        np.asarray(ATTACKS["ce"](logits_fn, images, labels, KEYS, num_restarts=n, **hyper))
        for n in (1, 6)
    ]
    once, often = (wrong(logits_fn, x, labels) for x in points)
    assert (once <= often).all() and 0 < once.sum() < often.sum() < len(labels)
    changed = np.abs(points[0] - points[1]).max((1, 2, 3)) > 0
    np.testing.assert_array_equal(changed, often & ~once)


@pytest.mark.slow
def test_more_targets_and_restarts_of_each_never_lose_a_success(float64):
    logits_fn, images, labels = problem()
    hyper = dict(epsilon=0.015, num_steps=1)
    points = [
        np.asarray(ATTACKS["t"](logits_fn, images, labels, KEYS, **hyper, **more))
        for more in (dict(num_targets=1), dict(num_targets=3, num_restarts=4))
    ]
    once, often = (wrong(logits_fn, x, labels) for x in points)
    assert (once <= often).all() and 0 < once.sum() < often.sum() < len(labels)
    np.testing.assert_array_equal(points[0][once], points[1][once])


@pytest.mark.slow
def test_for_two_classes_both_attacks_climb_the_one_margin(float64):
    logits_fn, images, labels = problem(2)
    margin = losses.margin(logits_fn(images), labels)
    ratio = adversarial_logit_ratio(Views(adversarial=logits_fn(images)), labels)
    np.testing.assert_array_equal(ratio, margin)
    untargeted = ATTACKS["dlr"](logits_fn, images, labels, KEYS)
    assert 0 < wrong(logits_fn, untargeted, labels).sum() < len(labels)
    targeted = ATTACKS["t"](logits_fn, images, labels, KEYS)
    np.testing.assert_allclose(targeted, untargeted, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_for_three_classes_the_targeted_loss_alone_is_a_margin(float64):
    logits_fn, images, labels = problem(3)
    logits = logits_fn(images)
    ratio = adversarial_logit_ratio(Views(adversarial=logits), labels)
    np.testing.assert_array_equal(ratio, losses.logit_ratio(logits, labels))
    targets = likeliest_wrong(logits, labels, 9)
    assert len(targets) == 2
    by_target = [targeted_loss(logits, labels, target) for target in targets]
    np.testing.assert_allclose(jnp.maximum(*by_target), losses.margin(logits, labels), 1e-12)
    found = ATTACKS["t"](logits_fn, images, labels, KEYS)
    assert 0 < wrong(logits_fn, found, labels).sum() < len(labels)


def test_there_are_no_more_targets_than_wrong_classes(float64):
    logits_fn, images, labels = problem(5, num_wrong=8)
    natural = np.asarray(logits_fn(images))
    targets = np.asarray(likeliest_wrong(natural, labels, 9))
    assert targets.shape == (4, 64)
    np.testing.assert_array_equal(np.sort(np.vstack([targets, labels]), 0).T, [range(5)] * 64)
    assert (np.diff(np.take_along_axis(natural, targets.T, -1)) < 0).all()
    tied = np.asarray(likeliest_wrong(np.ones((5, 5)), np.arange(5), 4))
    assert (tied != np.arange(5)).all(), "ties do not make the true class a target"


@pytest.mark.slow
def test_one_epsilon_for_each_example(float64):
    logits_fn, images, labels = problem()
    radii = np.where(np.arange(64) % 2, 0.02, 0.04)
    each = radii.reshape(-1, 1, 1, 1)
    found = ATTACKS["ce"](logits_fn, images, labels, KEYS, epsilon=each)
    for radius in (0.02, 0.04):
        same = ATTACKS["ce"](logits_fn, images, labels, KEYS, epsilon=radius)
        np.testing.assert_allclose(found[radii == radius], same[radii == radius], atol=1e-12)


def test_plain_functions_and_one_compilation_for_every_checkpoint(float64):
    logits_fn, images, labels = problem()

    def plain(images):
        return logits_fn(images)

    found = ATTACKS["ce"](logits_fn, images, labels, KEYS)
    np.testing.assert_allclose(ATTACKS["ce"](plain, images, labels, KEYS), found, atol=1e-9)
    with compiled_names() as names:
        for scale in (2.0, 3.0):
            other = Partial(two_layers, tuple(scale * np.asarray(w) for w in logits_fn.args[0]))
            ATTACKS["ce"](other, images, labels, KEYS, epsilon=0.01 * scale, rho=0.25 * scale)
    assert not names


@pytest.mark.parametrize("key", [slow(KEY), KEYS], ids=["one", "each"])
def test_apgd_uses_no_key_twice(key, float64):
    logits_fn, images, labels = problem()
    with jax.debug_key_reuse(True):
        ATTACKS["ce"](logits_fn, images, labels, jax.random.clone(key), num_restarts=2)


def test_each_iterate_takes_one_gradient(float64):
    """The start and each step, and one forward for the natural logits."""
    logits_fn, images, labels = problem()
    calls = []

    def counting(images):
        jax.debug.callback(lambda: calls.append("run"))
        return logits_fn(images)

    apgd(counting, images, labels, KEYS, epsilon=0.03, num_steps=7, num_restarts=2)
    jax.effects_barrier()
    assert len(calls) == 1 + 2 * 8


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(images=lambda x: 255 * x), r"expected \[0, 1\]"),
        (dict(labels=lambda y: y + 10), "labels span .* logits have 10 classes"),
        (dict(epsilon=lambda e: 8), "epsilon=8; expected"),
    ],
)
def test_what_apgd_cannot_mean_is_refused(attack, float64, change, message):
    logits_fn, images, labels = problem()
    call = dict(images=images, labels=labels, epsilon=0.1)
    call |= {name: function(call[name]) for name, function in change.items()}
    with pytest.raises(UsageError, match=message):
        attack(logits_fn, key=KEY, **call)
