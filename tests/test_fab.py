"""FAB: its projection against linear programs, closed forms, the ball, and golden/attacks."""

import functools

import golden
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from compilations import compiled_names
from golden_attacks import setting
from jax.tree_util import Partial
from slow_cases import slow

from cat_jax.attacks.fab import fab_t, fab_t_with_details
from cat_jax.attacks.planes import plane_step
from cat_jax.errors import UsageError
from cat_jax.types import DEVICES

KEY = jax.random.key(0)
UNIT = (0.0, 1.0)
HYPER = dict(alpha_max=0.1, eta=1.05, beta=0.9, pixel_range=UNIT)
SHORT = HYPER | dict(num_steps=10, num_targets=3)


def two_layers(weights, images):
    hidden = jnp.tanh((images - 0.5).reshape(len(images), -1) @ weights[0])
    return hidden @ weights[1]


def problem(num_classes=5, dtype=np.float64, num_examples=8):
    """(logits_fn, images, labels): all are right, but examples 2 and 5."""
    r = np.random.default_rng(0)
    weights = [r.normal(size=s).astype(dtype) for s in [(48, 16), (16, num_classes)]]
    logits_fn = Partial(two_layers, jax.device_put(weights))
    images = r.uniform(size=(num_examples, 4, 4, 3)).astype(dtype)
    labels = np.array(logits_fn(images).argmax(-1), np.int32)
    labels[[2, 5]] = (labels[[2, 5]] + 1) % num_classes
    return logits_fn, jnp.asarray(images), jnp.asarray(labels)


def max_norm(difference):
    return np.abs(difference).max((1, 2, 3))


# The projection.


def planes(num_pixels, num_cases, seed=0):
    """(point, normal, height) of planes within reach and beyond it, some with edges and ties."""
    r = np.random.default_rng(seed)
    for case in range(num_cases):
        point, normal = r.uniform(size=num_pixels), r.normal(size=num_pixels)
        if case % 3 == 1:
            normal[: num_pixels // 3] = 0.0
            point[-5:] = [0, 1, 0, 1, 0.5]
        if case % 3 == 2:
            point = np.round(3 * point) / 3  # Many are at an edge, many equally far from one.
        farthest = np.abs(normal) @ np.where(normal < 0, 1 - point, point)
        yield point, normal, r.uniform(-1.2, 1.2) * farthest


def least_norm(point, normal, height):
    """Of all steps onto the plane within [0, 1], by a linear program; None: there is none."""
    n = len(point)
    ones = -np.ones((n, 1))
    answer = scipy.optimize.linprog(
        np.append(np.zeros(n), 1.0),
        A_ub=np.block([[np.eye(n), ones], [-np.eye(n), ones]]),
        b_ub=np.zeros(2 * n),
        A_eq=np.append(normal, 0.0)[None],
        b_eq=[-height],
        bounds=[*zip(-point, 1 - point, strict=True), (0, None)],
    )
    assert answer.status in (0, 2), answer.message  # Solved, or infeasible.
    return answer.fun if answer.status == 0 else None


def bisected_step(point, normal, height):
    """Every pixel by one length, or to its edge; the length bisected. Or the farthest corner."""
    towards = -np.sign(height) * np.sign(normal)
    room = np.where(towards > 0, 1 - point, point)
    low, high = 0.0, 1.0
    for _ in range(200):
        length = (low + high) / 2
        beyond = np.abs(normal) @ np.minimum(length, room) >= abs(height)
        low, high = (low, length) if beyond else (length, high)
    return towards * np.minimum(high, room)


def test_the_projection_is_the_solution_of_the_linear_program(float64):
    step_of = jax.jit(functools.partial(plane_step, pixel_range=UNIT))
    beyond = 0
    for point, normal, height in planes(24, 60):
        step, least = np.asarray(step_of(point, normal, height)), least_norm(point, normal, height)
        assert (point + step).min() >= -1e-15 and (point + step).max() <= 1 + 1e-15
        if least is None:
            beyond += 1
            towards = -np.sign(height) * np.sign(normal)
            corner = np.select([towards > 0, towards < 0], [1.0, 0.0], point)
            np.testing.assert_allclose(point + step, corner, atol=1e-15)
        else:
            np.testing.assert_allclose(np.abs(step).max(), least, atol=1e-9)
            np.testing.assert_allclose(height + normal @ step, 0.0, atol=1e-12)
    assert 5 < beyond < 30


@pytest.mark.parametrize("num_pixels", [1, 7, 3072])
def test_the_projection_is_that_of_a_bisection(dtype, num_pixels):
    step_of = jax.jit(functools.partial(plane_step, pixel_range=UNIT))
    for point, normal, height in planes(max(num_pixels, 5), 20, seed=1):
        case = [x[:num_pixels].astype(dtype) for x in (point, normal)] + [np.asarray(height, dtype)]
        want = bisected_step(*(np.float64(x) for x in case))
        got = step_of(*case)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, want, atol=1e-12 if dtype == "float64" else 1e-5)


def test_the_projection_is_exact_where_pixels_reach_their_edges_one_by_one(float64):
    """Newton's method then needs about as many steps as there are pixels."""
    step_of = jax.jit(functools.partial(plane_step, pixel_range=UNIT))
    point, normal = 0.5 ** np.arange(20), 3.0 ** np.arange(20)
    for share in (1e-3, 0.1, 0.5, 0.9, 0.999):
        height = share * (normal @ point)
        step = step_of(point, normal, height)
        np.testing.assert_allclose(step, bisected_step(point, normal, height), atol=1e-12)


def test_a_plane_without_a_box_has_the_closed_form(float64):
    step_of = jax.jit(functools.partial(plane_step, pixel_range=None))
    for point, normal, height in planes(24, 6):
        step = step_of(point, normal, height)
        want = -height * np.sign(normal) / np.abs(normal).sum()
        np.testing.assert_allclose(step, want, atol=1e-12)


@pytest.mark.parametrize("pixel_range", [UNIT, None])
@pytest.mark.parametrize("height", [-1.0, 0.0, 1.0])
def test_without_a_normal_there_is_no_step(pixel_range, height):
    point = jnp.linspace(0, 1, 5)
    np.testing.assert_array_equal(plane_step(point, 0 * point, height, pixel_range), 0 * point)
    step = plane_step(point, point - 0.3, 0.0, pixel_range)
    np.testing.assert_array_equal(step, 0 * point, err_msg="on the plane already")


# The attack.


@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_on_a_linear_model_the_distance_is_exact(float64, spread):
    """|margin| / ||w||_1, or more where the box is in the way; eta says how far beyond it is."""
    r = np.random.default_rng(0)
    weights = r.normal(size=(48, 2))
    logits_fn = Partial(lambda w, x: (x - 0.5).reshape(len(x), -1) @ w, weights)
    images = r.uniform(0.5 - spread, 0.5 + spread, (16, 4, 4, 3))
    logits = np.asarray(logits_fn(images))
    labels, gap = logits.argmax(-1).astype(np.int32), np.abs(logits[:, 0] - logits[:, 1])
    free = gap / np.abs(weights[:, 1] - weights[:, 0]).sum()
    rows = (weights[:, 1 - labels] - weights[:, labels]).T
    steps = [bisected_step(x.ravel(), w, -h) for x, w, h in zip(images, rows, gap, strict=True)]
    exact = np.abs(steps).max(-1)
    assert np.allclose(exact, free) == (spread == 0.1)
    hyper = HYPER | dict(epsilon=1.0, num_targets=9, num_steps=100)
    for eta, excess in [(1 + 1e-9, 1e-8), (1.05, 0.02)]:
        found = fab_t_with_details(logits_fn, images, labels, **hyper | dict(eta=eta))
        ratio = found.min_norm_per_target[0] / exact
        assert found.fooled.all() and ratio.min() >= 1 and ratio.max() <= 1 + excess
        np.testing.assert_allclose(max_norm(found.adversarial - images) / exact, ratio)
    by_default = fab_t(logits_fn, images, labels, KEY, epsilon=1.0)
    np.testing.assert_array_equal(by_default, found.adversarial)


@pytest.mark.parametrize(
    "dtype, num_classes",
    [slow("float64", 2), slow("float64", 3), ("float64", 5), slow("float32", 5)],
    indirect=["dtype"],
)
def test_what_is_returned_is_wrong_and_in_the_ball_or_unchanged(dtype, num_classes):
    logits_fn, images, labels = problem(num_classes, dtype)
    everything = fab_t_with_details(logits_fn, images, labels, epsilon=1.0, **SHORT)
    norms = np.asarray(everything.min_norm_per_target)
    assert norms.shape == (min(3, num_classes - 1), 8)
    correct = logits_fn(images).argmax(-1) == labels
    np.testing.assert_array_equal((norms == 0).all(0), ~correct)
    epsilon = float(np.median(norms.min(0)[correct]))

    found = fab_t_with_details(logits_fn, images, labels, epsilon=epsilon, **SHORT)
    np.testing.assert_array_equal(norms, found.min_norm_per_target)
    np.testing.assert_array_equal(found.fooled, ~correct | (norms.min(0) <= epsilon))
    moved = max_norm(found.adversarial - images)
    # The first target within epsilon is kept, not the nearest.
    first = np.take_along_axis(norms, (norms <= epsilon).argmax(0)[None], 0)[0]
    np.testing.assert_allclose(moved, np.where(found.fooled & correct, first, 0.0))
    assert 0 < np.sum(found.fooled & correct) < np.sum(correct) and moved.max() <= epsilon
    assert found.adversarial.min() >= 0 and found.adversarial.max() <= 1
    np.testing.assert_array_equal(logits_fn(found.adversarial).argmax(-1) != labels, found.fooled)
    assert found.adversarial.dtype == norms.dtype == dtype


@pytest.mark.slow
def test_more_steps_never_lose(float64):
    """The nearest point is kept, not the last: the norm of each target only falls."""
    logits_fn, images, labels = problem()
    norms = np.array(
        [
            fab_t_with_details(
                logits_fn, images, labels, epsilon=0.1, **SHORT | dict(num_steps=n)
            ).min_norm_per_target
            for n in (1, 40)
        ]
    )
    assert (norms[1:] <= norms[:-1]).all() and (norms[1] < norms[0]).any()
    assert np.isinf(norms[0]).any() and np.isfinite(norms[1]).all()


def test_an_example_does_not_depend_on_its_batch(float64):
    logits_fn, images, labels = problem()
    attack = functools.partial(fab_t_with_details, logits_fn, **SHORT)
    epsilon = np.linspace(0.001, 0.05, 8).reshape(8, 1, 1, 1)
    whole = attack(images, labels, epsilon=epsilon)
    for part in (np.array([6, 3, 0, 7, 2, 5, 4, 1]), np.array([3])):
        got = attack(images[part], labels[part], epsilon=epsilon[part])
        np.testing.assert_allclose(got.adversarial, whole.adversarial[part], atol=1e-12)
        np.testing.assert_array_equal(got.fooled, whole.fooled[part])
        np.testing.assert_allclose(
            got.min_norm_per_target, whole.min_norm_per_target[:, part], atol=1e-12
        )


@pytest.mark.slow
def test_it_splits_over_devices_by_the_sharding_of_its_input(float64):
    logits_fn, images, labels = problem()
    mesh = jax.sharding.Mesh(np.array(jax.devices()), (DEVICES,))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(DEVICES))
    hyper = dict(epsilon=0.05, num_steps=10, num_targets=3)
    shared = fab_t(logits_fn, *jax.device_put((images, labels), split), KEY, **hyper)
    assert len(shared.sharding.device_set) == 4
    np.testing.assert_allclose(shared, fab_t(logits_fn, images, labels, KEY, **hyper), atol=1e-12)


def test_a_classifier_without_gradient_is_left_alone():
    _, images, labels = problem(dtype=np.float32)
    logits_fn = Partial(lambda w, x: x.reshape(len(x), -1) @ w + 1.0, jnp.zeros((48, 5)))
    found = fab_t_with_details(logits_fn, images, 0 * labels, epsilon=1.0, **SHORT)
    np.testing.assert_array_equal(found.adversarial, images)
    assert not found.fooled.any() and np.isinf(found.min_norm_per_target).all()


@pytest.mark.slow
def test_plain_functions_and_one_compilation_for_every_checkpoint():
    logits_fn, images, labels = problem(dtype=np.float32)
    attack = functools.partial(fab_t, images=images, labels=labels, key=KEY, num_steps=3)
    plain = attack(lambda x: logits_fn(x), epsilon=0.05)
    np.testing.assert_allclose(plain, attack(logits_fn, epsilon=0.05), atol=1e-6)
    with compiled_names() as names:
        for scale in (2.0, 3.0):
            weights = [scale * np.asarray(w) for w in logits_fn.args[0]]
            attack(Partial(two_layers, weights), epsilon=0.01 * scale, eta=1.0 + 0.1 * scale)
    assert not names


@pytest.mark.slow
def test_it_can_be_compiled_and_other_ranges_and_radius_zero(float64):
    logits_fn, images, labels = problem()
    attack = functools.partial(fab_t, logits_fn, key=KEY, num_steps=10)
    np.testing.assert_array_equal(attack(images, labels, epsilon=0.0), images)
    traced = jax.jit(lambda x, y, e: attack(x, y, epsilon=e))(images, labels, 0.05)
    np.testing.assert_allclose(traced, attack(images, labels, epsilon=0.05), atol=1e-12)
    dark = jnp.where(images < 0.5, 0.0, images)
    labels = logits_fn(dark).argmax(-1)
    clipped, free = (attack(dark, labels, epsilon=1.0, pixel_range=r) for r in (UNIT, None))
    assert clipped.min() == 0 > free.min()
    assert (max_norm(free - dark) > 0).all() and (max_norm(free - dark) < 1).all()


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(images=lambda x: 255 * x), "images span"),
        (dict(labels=lambda y: y + 5), "labels span"),
        (dict(labels=lambda y: y[:3]), "labels are int32"),
        (dict(epsilon=lambda e: 8), "epsilon=8; expected"),
    ],
)
def test_what_it_cannot_mean_is_refused(change, message):
    logits_fn, images, labels = problem(dtype=np.float32)
    call = dict(images=images, labels=labels, epsilon=0.1)
    call |= {name: function(call[name]) for name, function in change.items()}
    with pytest.raises(UsageError, match=message):
        fab_t(logits_fn, key=KEY, **call)


@pytest.mark.slow
@pytest.mark.parametrize("net", ["mnist", "small"])
@pytest.mark.parametrize(
    "dtype, num_targets", [("float64", 2), ("float64", 9), ("float32", 9)], indirect=["dtype"]
)
def test_boundary_attack_golden(dtype, net, num_targets):
    """Nobody needs a third target to be fooled. In float32, norms agree to 1 %."""
    logits_fn, images, labels, info, arrays = setting(net, dtype)
    epsilon, correct = info["autoattack_eps"], arrays["fab_t_f64_correct_after"]
    hyper = HYPER | dict(epsilon=epsilon, num_steps=100, num_targets=num_targets)
    found = fab_t_with_details(logits_fn, images, labels, **hyper)
    points = golden.nhwc(arrays["fab_t_f64_adv"])
    norms = arrays["fab_t_f64_min_norm_per_target"][:num_targets]
    if dtype == "float64":
        np.testing.assert_allclose(found.adversarial, points, rtol=0, atol=1e-9)
        np.testing.assert_allclose(found.min_norm_per_target, norms, rtol=0, atol=1e-9)
    else:
        assert np.mean(np.abs(found.adversarial - points) <= 1e-5) >= 0.99
        np.testing.assert_allclose(found.min_norm_per_target, norms, rtol=1e-2)
    np.testing.assert_array_equal(~found.fooled, correct)
    right = logits_fn(found.adversarial).argmax(-1) == labels
    np.testing.assert_array_equal(right, correct)
