"""Attacks in L2 and L1 balls: projections, closed forms on linear models, balls and boxes."""

import functools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compiled_names
from hypothesis import strategies as st
from jax.tree_util import Partial
from scipy import optimize

from cat_jax import attacks
from cat_jax.attacks import square_windows
from cat_jax.attacks.apgd import checked_apgd
from cat_jax.attacks.apgd_l1 import l1_steps
from cat_jax.attacks.balls import BALLS
from cat_jax.attacks.fab import fab_t_with_details
from cat_jax.attacks.planes import plane_step
from cat_jax.errors import UsageError
from cat_jax.objectives import adversarial_cross_entropy

KEY = jax.random.key(0)
SHAPE = (5, 5, 2)
SIZE = 50
ORDERS = {"l2": 2, "l1": 1}
MEMBERS = {
    "pgd": functools.partial(attacks.pgd, step_size=0.2, num_steps=5),
    "apgd": functools.partial(attacks.apgd, num_steps=10),
    "apgd_t": functools.partial(attacks.apgd_t, num_steps=10, num_targets=2),
    "fab_t": functools.partial(attacks.fab_t, num_steps=5, num_targets=2),
    "square": functools.partial(attacks.square, num_queries=30),
}


def cases(*pairs, default):
    """Pairs of an attack and a norm; those that are not in `default` are slow."""
    return [
        pytest.param(*pair, marks=() if pair in default else pytest.mark.slow) for pair in pairs
    ]


ALL = [(name, norm) for name in MEMBERS for norm in ORDERS]


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


def batch(count, seed=0, low=0.0, high=1.0):
    return np.random.default_rng(seed).uniform(low, high, (count, *SHAPE))


def network(weights, images):
    first, last = weights
    return jnp.tanh(images.reshape(len(images), -1) @ first) @ last


def classifier(seed=0):
    """Four classes, not linear."""
    rng = np.random.default_rng(seed)
    return Partial(
        network, (jnp.asarray(rng.normal(size=(SIZE, 8))), jnp.asarray(rng.normal(size=(8, 4))))
    )


def linear(num_classes=2):
    """(classifier, its weights [SIZE, K])."""
    weights = np.random.default_rng(3).normal(size=(SIZE, num_classes))
    return Partial(lambda w, x: x.reshape(len(x), -1) @ w, jnp.asarray(weights)), weights


def predicted(logits_fn, images):
    return np.asarray(logits_fn(images).argmax(-1))


def lengths(delta, norm):
    return np.linalg.norm(np.asarray(delta).reshape(len(delta), -1), ORDERS[norm], axis=-1)


def greedy_gain(images, direction, epsilon):
    """What a linear function gains at most in an L1 ball within [0, 1]."""
    gains = []
    for image, uphill in zip(images.reshape(len(images), -1), direction, strict=True):
        room, left, gain = np.where(uphill > 0, 1 - image, image), epsilon, 0.0
        for pixel in np.argsort(-np.abs(uphill)):
            move = min(left, room[pixel])
            gain, left = gain + move * abs(uphill[pixel]), left - move
        gains.append(gain)
    return np.array(gains)


def distance(image, normal, norm):
    """From an image to the plane normal @ x = 0 within [0, 1], if in L2 the box does not matter."""
    height = image @ normal
    if norm == "l2":
        return height / np.linalg.norm(normal)
    room = np.where(normal < 0, 1 - image, image)
    order = np.argsort(-np.abs(normal))
    gained = np.cumsum((np.abs(normal) * room)[order])
    last = np.searchsorted(gained, height)
    before = gained[last - 1] if last else 0.0
    return room[order][:last].sum() + (height - before) / np.abs(normal)[order][last]


@pytest.mark.parametrize("is_clipped", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_l1_projection_is_the_nearest_point_of_ball_and_box(is_clipped):
    """Against bisection on the cut; radius 0, and one that no entry reaches."""
    images = batch(12)
    delta = np.random.default_rng(1).normal(size=images.shape)
    radii = np.array([0.0, 1e-3, 0.5, 1, 2, 3, 5, 7, 9, 10, 15, 500])
    pixel_range = (0.0, 1.0) if is_clipped else None
    project = jax.jit(functools.partial(BALLS["l1"].project, pixel_range=pixel_range))
    point = project(images + delta, images, radii.reshape(-1, 1, 1, 1))
    room = np.where(delta > 0, 1 - images, images) if is_clipped else np.inf
    for index, radius in enumerate(radii):
        size = np.abs(delta[index])
        most = np.minimum(size, room[index] if is_clipped else np.inf)

        def moved(cut, size=size, most=most):
            return np.clip(size - cut, 0, most)

        cut = 0.0
        if moved(0).sum() > radius:
            cut = optimize.bisect(lambda c, r=radius: moved(c).sum() - r, 0, 10, xtol=1e-14)
        want = images[index] + np.sign(delta[index]) * moved(cut)
        np.testing.assert_allclose(point[index], want, atol=1e-10)


@pytest.mark.slow
def test_uniform_noise_fills_the_l1_ball_and_belongs_to_its_example():
    images = jnp.zeros((4000, 2, 2, 1))
    keys = jax.random.split(KEY, 4000)
    noise = BALLS["l1"].noise(keys, images)
    radii = lengths(noise, "l1")
    assert radii.max() <= 1
    np.testing.assert_allclose(np.mean(radii < 0.5**0.25), 0.5, atol=0.03)  # r^4 within r.
    np.testing.assert_allclose(np.mean(noise, 0), 0, atol=0.03)
    part = BALLS["l1"].noise(keys[7:9], images[7:9])
    np.testing.assert_allclose(part, noise[7:9], atol=1e-12)


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_a_step_to_a_plane_is_the_shortest_within_the_pixel_range(norm):
    """Against linear programs in L1, and bisection on the multiplier in L2."""
    rng = np.random.default_rng(2)
    step_of = jax.jit(functools.partial(plane_step, pixel_range=(0.0, 1.0), norm=norm))
    for height in (0.0, 0.3, -1.0, 2.0, 100.0):
        point, normal = rng.uniform(size=12), rng.normal(size=12)
        normal[3] = 0.0
        step = np.asarray(step_of(point, normal, height))
        assert (point + step >= -1e-12).all() and (point + step <= 1 + 1e-12).all()
        towards = -np.sign(height) * np.sign(normal)
        room = np.where(towards > 0, 1 - point, point) * (towards != 0)
        if np.abs(normal) @ room < abs(height):  # Beyond the range: its farthest corner.
            np.testing.assert_allclose(step, towards * room, atol=1e-12)
            continue
        np.testing.assert_allclose(normal @ step, -height, atol=1e-9)
        if norm == "l1":
            program = optimize.linprog(
                np.ones(12),
                A_eq=np.abs(normal)[None],
                b_eq=[abs(height)],
                bounds=list(zip(np.zeros(12), room, strict=True)),
            )
            np.testing.assert_allclose(np.abs(step).sum(), program.fun, atol=1e-9)
        elif height:
            weight = np.abs(normal)
            multiplier = optimize.bisect(
                lambda m, w=weight, r=room, h=height: w @ np.minimum(m * w, r) - abs(h), 0, 1e3
            )
            want = towards * np.minimum(multiplier * weight, room)
            np.testing.assert_allclose(step, want, atol=1e-9)


@pytest.mark.parametrize(
    "name, norm",
    cases(
        *[(name, norm) for name in ("pgd", "apgd") for norm in ORDERS],
        default=[("pgd", "l1")],
    ),
)
def test_on_a_linear_model_apgd_and_pgd_reach_the_best_point_of_the_ball(name, norm):
    """In L2 where the ball is inside the box; in L1 also where entries are at its edges."""
    logits_fn, weights = linear()
    images = batch(10, low=0.4, high=0.6)
    labels = predicted(logits_fn, images)
    direction = np.where(labels == 0, 1, -1)[:, None] * (weights[:, 1] - weights[:, 0])
    for epsilon in (0.1, 0.3) if norm == "l2" else (0.1, 0.3, 2.0):
        most = epsilon * np.linalg.norm(direction, axis=-1)
        if norm == "l1":
            most = greedy_gain(images, direction, epsilon)
        hyper = dict(epsilon=np.full(10, epsilon), norm=norm)
        if name == "pgd":
            steps = dict(step_size=np.full(10, epsilon / 8), num_steps=60)
            point = attacks.pgd(logits_fn, images, labels, KEY, **steps, **hyper)
        else:
            steps = dict(num_steps=60, loss=adversarial_cross_entropy)
            point = checked_apgd(logits_fn, images, labels, KEY, **steps, **hyper).best_point
        gain = np.sum((np.asarray(point) - images).reshape(10, -1) * direction, -1)
        assert (gain <= most + 1e-9).all()
        assert (gain >= (0.95 if name == "pgd" else 0.98) * most).all(), (epsilon, gain / most)


@pytest.mark.parametrize("norm", ["l1", pytest.param("l2", marks=pytest.mark.slow)])
def test_fab_finds_the_distance_to_a_linear_models_boundary(norm):
    logits_fn, weights = linear(3)
    images = batch(10, low=0.4, high=0.6)
    logits = np.asarray(logits_fn(images))
    labels = logits.argmax(-1)
    details = fab_t_with_details(
        logits_fn,
        images,
        labels,
        epsilon=10.0,
        num_steps=30,
        num_targets=2,
        norm=norm,
        alpha_max=0.1,
        eta=1.05,
        beta=0.9,
        pixel_range=(0.0, 1.0),
    )
    for index, label in enumerate(labels):
        wanted = min(
            distance(images[index].ravel(), weights[:, label] - weights[:, other], norm)
            for other in range(3)
            if other != label
        )
        nearest = details.min_norm_per_target[:, index].min()
        assert 1 - 1e-9 <= nearest / wanted < 1.01, (index, nearest, wanted)


@pytest.mark.parametrize("name, norm", cases(*ALL, default=[("apgd", "l1")]))
def test_attacks_stay_in_ball_and_box_with_keys_and_radii_per_example(name, norm):
    """From radius 0 to 10; each image's result depends on its own key, radius and pixels alone."""
    logits_fn = classifier()
    images = batch(8, 5)
    images[0] = np.round(images[0])
    labels = predicted(logits_fn, images)
    radii = np.array([0.0, 0.01, 0.1, 0.3, 0.5, 1.0, 3.0, 10.0])
    keys = jax.random.split(KEY, 8)
    attack = functools.partial(MEMBERS[name], norm=norm)
    adversarial = np.asarray(attack(logits_fn, images, labels, keys, epsilon=radii))
    assert (lengths(adversarial - images, norm) <= radii * (1 + 1e-9)).all()
    assert adversarial.min() >= 0 and adversarial.max() <= 1
    np.testing.assert_array_equal(adversarial[0], images[0])
    assert (predicted(logits_fn, adversarial) != labels)[-1]
    order = np.random.default_rng(0).permutation(8)
    permuted = attack(logits_fn, images[order], labels[order], keys[order], epsilon=radii[order])
    np.testing.assert_allclose(permuted, adversarial[order], atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name, norm", ALL)
@hypothesis.given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6), st.sampled_from((1, 3))),
    radii=st.lists(st.sampled_from((0.0, 10.0)) | st.floats(0, 10), min_size=2, max_size=2),
    seed=st.integers(0, 100),
)
@hypothesis.settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
def test_images_of_any_shape_stay_in_balls_of_any_radius(name, norm, shape, radii, seed):
    rng = np.random.default_rng(seed)
    images = rng.uniform(size=(2, *shape)).round(1)  # Some pixels are at the edges of the box.
    size = images[0].size
    weights = (rng.normal(size=(size, 8)), rng.normal(size=(8, 4)))
    logits_fn = Partial(network, tuple(map(jnp.asarray, weights)))
    labels = predicted(logits_fn, images)
    attack = functools.partial(MEMBERS[name], norm=norm, epsilon=np.array(radii))
    adversarial = np.asarray(attack(logits_fn, images, labels, KEY))
    assert (lengths(adversarial - images, norm) <= np.array(radii) * (1 + 1e-9) + 1e-15).all()
    assert adversarial.min() >= 0 and adversarial.max() <= 1


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("name", ["apgd", "fab_t", "square"])
def test_one_compilation_serves_all_weights_and_no_gradient_flows(name, norm):
    images = batch(3, 5)
    labels = predicted(classifier(), images)
    attack = functools.partial(MEMBERS[name], norm=norm)
    first = attack(classifier(), images, labels, KEY, epsilon=0.4)
    with compiled_names() as names:
        second = attack(classifier(1), images, labels, KEY, epsilon=0.5)
    assert not names, names

    def total(weights):
        return jnp.sum(attack(Partial(network, weights), images, labels, KEY, epsilon=0.4))

    (weights,), (others,) = classifier().args, classifier(1).args
    gradient = jax.jit(jax.grad(total))(weights)
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradient))
    del first, second, others


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("name", ["pgd", "apgd", "fab_t", "square"])
def test_vmap_over_weights_agrees_with_one_call_for_each(name, norm):
    images = batch(3, 5)
    labels = predicted(classifier(), images)

    def attacked(weights):
        attack = functools.partial(MEMBERS[name], norm=norm, epsilon=0.4)
        return attack(Partial(network, weights), images, labels, KEY)

    stacked = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *(classifier(s).args[0] for s in (0, 1))
    )
    together = jax.vmap(attacked)(stacked)
    for index, seed in enumerate((0, 1)):
        np.testing.assert_allclose(together[index], attacked(classifier(seed).args[0]), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["l2", pytest.param("l1", marks=pytest.mark.slow)])
def test_proposals_of_square_change_two_windows_and_reach_every_pixel(norm):
    """Their norm is the radius, in L1 at most; the last row and column are reached too."""
    image, side = jnp.full((8, 8, 1), 0.5), 3
    ball = square_windows.Ball(image, jnp.asarray(0.4), (0.0, 1.0), norm)
    pair = jnp.asarray(square_windows.windows([side], image.shape, norm))[0]
    point = jax.jit(lambda key: square_windows.start(key, ball))(KEY)
    propose = jax.jit(jax.vmap(lambda key: square_windows.propose(key, point, ball, pair, side)))
    deltas = np.asarray(propose(jax.random.split(KEY, 200)))[..., 0] - 0.5
    sizes = lengths(deltas, norm)
    if norm == "l2":
        np.testing.assert_allclose(sizes, 0.4, rtol=1e-9)
    assert (sizes <= 0.4 * (1 + 1e-9)).all()
    # Elsewhere the perturbation keeps its direction: all entries are scaled by one factor.
    before = np.asarray(point)[..., 0] - 0.5
    ratios = deltas / np.where(before == 0, 1, before)
    kept = [np.isclose(ratio, np.median(ratio), rtol=1e-6).sum() for ratio in ratios]
    assert min(kept) >= 64 - 2 * side**2 - 15  # The start leaves a row and a column at 0.
    changed = np.abs(deltas - before).max(0) > 1e-3
    assert changed.all()


def test_squares_windows_are_two_hills_of_norm_one():
    terraces = [[0.25, 0.25, 0.25], [0.25, 1.25, 0.25], [0.25, 0.25, 0.25]]
    np.testing.assert_allclose(square_windows.hill(3, 3, 2), terraces)
    window = square_windows.two_hills(5, "l2")
    assert (window[:2] > 0).all() and (window[2:] < 0).all()
    for norm, order in ORDERS.items():
        for side in (1, 2, 5, 6):
            window = square_windows.two_hills(side, norm)
            np.testing.assert_allclose(np.linalg.norm(window.ravel(), order), 1)
    assert square_windows.odd_sides([20, 6, 1], 9, 9) == [9, 7, 3]


def test_apgds_steps_in_l1_add_up():
    for num_steps in range(1, 30):
        assert l1_steps(num_steps).sum() == num_steps and l1_steps(num_steps).min() >= 0
    assert l1_steps(100).tolist() == [30, 30, 40]


@pytest.mark.parametrize("name", MEMBERS)
def test_a_norm_that_does_not_exist_is_refused(name):
    images = batch(2)
    with pytest.raises(UsageError, match="norm is 'l3'; available: linf, l2, l1"):
        MEMBERS[name](classifier(), images, np.zeros(2, int), KEY, epsilon=0.1, norm="l3")


def test_standard_in_l1_runs_autoattacks_members():
    members = attacks.standard_attacks(epsilon=12.0, norm="l1")
    assert members["apgd_ce"].keywords["num_restarts"] == 5
    assert members["apgd_t"].keywords["num_targets"] == 5
    assert members["fab_t"].keywords["num_targets"] == 9
    assert {member.keywords["norm"] for member in members.values()} == {"l1"}
