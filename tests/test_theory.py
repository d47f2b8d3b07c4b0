"""The theorems of the paper, in the plane."""

import csv
import itertools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from slow_cases import slow

from cat_jax.errors import UsageError
from cat_jax.theory import __main__ as theory_command
from cat_jax.theory import (
    bounds,
    boxes,
    counterexamples,
    error_rates,
    learned,
    plane_objectives,
    problems,
    trials,
)
from cat_jax.theory.__main__ import write
from cat_jax.theory.piecewise import Part, PiecewiseLinear, affine, region, shares_line, sign
from cat_jax.theory.summary import Budget

NUM_POINTS = 60
CENTRE = np.array([[0.3, 0.6]])
coefficient = st.floats(-3, 3, width=32)
row = st.tuples(coefficient, coefficient, coefficient).filter(
    lambda r: max(abs(r[0]), abs(r[1])) > 0.1
)
groups = st.lists(st.lists(row, min_size=1, max_size=2), min_size=1, max_size=2)


@pytest.fixture(scope="module")
def classifiers():
    return trials.draw(0, 1000, problems.oracle())


@pytest.fixture(scope="module")
def two_sided():
    return problems.make("two_sided", 0, NUM_POINTS)


def piecewise(of_groups):
    return PiecewiseLinear(tuple(np.array(rows) for rows in of_groups))


def everywhere():
    return Part(np.array([[0.0, 0.0, 1.0]]), False)


# Exact answers.


@given(row, st.sampled_from([-1, 1]))
def test_a_line_in_a_ball_has_a_closed_form(line, side):
    line = np.array(line)
    closed = side * (CENTRE[0] @ line[:2] + line[2]) - 0.1 * (abs(line[0]) + abs(line[1]))
    f = PiecewiseLinear((line[None],))
    np.testing.assert_allclose(boxes.least(f, CENTRE, 0.1, side, everywhere()), [closed], atol=1e-9)
    if abs(closed) > 1e-6:
        wrong = Part(-side * line[None], False)
        assert boxes.reaches(CENTRE, 0.1, wrong) == (closed < 0)


@given(st.lists(row, min_size=1, max_size=4))
def test_reaching_a_polygon_is_a_linear_program(rows):
    rows = np.array(rows)
    # The largest t with every row >= t: is it positive?
    program = linprog(
        [0, 0, -1],
        np.column_stack([-rows[:, :2], np.ones(len(rows))]),
        rows[:, 2],
        bounds=[(0.2, 0.4), (0.5, 0.7), (None, 10)],
    )
    largest = -program.fun
    if abs(largest) > 1e-6:
        for is_open in (False, True):
            assert boxes.reaches(CENTRE, 0.1, Part(rows, is_open)) == (largest > 0)


def test_ties_reach_closed_parts_and_not_open_ones():
    touching = np.array([[1.0, 0.0, -0.4]])  # x1 >= 0.4, the ball's right edge.
    assert boxes.reaches(CENTRE, 0.1, Part(touching, False))
    assert not boxes.reaches(CENTRE, 0.1, Part(touching, True))
    line = Part(np.array([[1.0, 0.0, -0.3]]), False), Part(np.array([[-1.0, 0.0, 0.3]]), True)
    assert not boxes.reaches(CENTRE, 0.1, *line)


@given(groups)
def test_regions_are_where_the_sign_is(of_groups):
    f = piecewise(of_groups)
    points = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    for side, is_open in itertools.product((-1, 1), (False, True)):
        parts = region(f, side, is_open=is_open)
        held = [np.all(affine(part.rows, points) >= 0, axis=-1) for part in parts]
        np.testing.assert_array_equal(np.any(held, axis=0), side * f(points) >= 0)


@pytest.mark.slow
def test_dense_search_finds_what_is_there_and_nothing_else(classifiers, two_sided):
    missed = 0
    for outputs, f in itertools.product(error_rates.OUTPUTS, classifiers[:30]):
        exact = error_rates.exact(f, two_sided, outputs=outputs)
        g = f if outputs == "real" else (lambda points, f=f: sign(f(points)))
        for there, found in zip(exact, error_rates.dense(g, two_sided, resolution=31), strict=True):
            assert not np.any(found & ~there)
            missed += np.sum(there & ~found)
    assert missed <= 0.01 * 30 * 2 * 4 * NUM_POINTS


def test_a_finer_grid_nears_the_least_value(classifiers, two_sided):
    parts = region(two_sided.oracle, -1, is_open=False)
    for f in classifiers[:8]:
        exact = np.min([boxes.least(f, two_sided.points, 0.1, 1, part) for part in parts], axis=0)
        inside = error_rates.in_ball(two_sided, 51)
        values = np.where(two_sided.oracle(inside) <= 0, f(inside), np.inf).min(axis=1)
        steepness = np.abs(f.rows[:, :2]).sum(axis=1).max()
        seen = np.isfinite(values)
        assert np.all(values[seen] >= exact[seen] - 1e-9)
        assert np.all(values[seen] <= exact[seen] + 4 * 0.004 * steepness)


# The problems.


@pytest.mark.parametrize("name", problems.PROBLEMS)
def test_the_oracle_crosses_some_balls_or_none(name):
    problem = problems.make(name, 3, 200)
    crossed = problems.crossed(problem)
    inside = sign(problem.oracle(error_rates.in_ball(problem, 41)))
    np.testing.assert_array_equal(crossed, np.ptp(inside, axis=1) > 0)
    left = problem.points[:, 0] < 0.5
    assert set(problem.labels) == {-1, 1}
    if name == "apart":
        assert not crossed.any()
    else:
        assert 0.2 < crossed.mean() < 0.6
    if name == "one_sided":
        assert set(problem.labels[crossed & left]) == {1}
        assert set(problem.labels[crossed & ~left]) == {-1}


def test_names_that_there_are_not():
    with pytest.raises(UsageError, match="two_sided"):
        problems.make("sideways", 0, 10)
    with pytest.raises(UsageError, match="sign"):
        error_rates.exact(problems.oracle(), problems.make("apart", 0, 10), outputs="logits")


# Theorem 1.


@pytest.mark.parametrize("outputs", error_rates.OUTPUTS)
@pytest.mark.parametrize("count", [100, slow(1000)])
def test_theorem_1_on_random_classifiers(classifiers, two_sided, outputs, count):
    found = trials.inclusion(classifiers[:count], two_sided, outputs=outputs)
    assert found.outside == 0
    assert np.all(found.robust <= found.calibrated)
    assert found.unequal == 0  # More than the theorem: the rest are the crossed balls.
    assert np.all(found.calibrated >= found.crossed)
    assert np.ptp(found.robust) > 0.5 and np.mean(found.robust < found.calibrated) > 0.5


@given(groups, st.sampled_from(error_rates.OUTPUTS), st.sampled_from(problems.PROBLEMS))
@settings(max_examples=60, deadline=None)
def test_theorem_1_on_any_classifier_that_shares_no_line(of_groups, outputs, name):
    f, problem = piecewise(of_groups), problems.make(name, 1, 30)
    if not shares_line(f, problem.oracle):
        found = error_rates.exact(f, problem, outputs=outputs)
        assert not np.any(found.robust & ~found.calibrated)
        np.testing.assert_array_equal(found.calibrated, found.robust | problems.crossed(problem))


def test_theorem_1_is_false_of_the_oracle_nearby(two_sided):
    problem = counterexamples.crossed_only(two_sided)
    f = counterexamples.oracle_nearby(problem.oracle)
    assert np.any(sign(f(np.array([[0.5, 4.0]]))) != sign(problem.oracle(np.array([[0.5, 4.0]]))))
    found = error_rates.exact(f, problem, outputs="sign")
    assert np.mean(found.robust) == 1 and np.mean(found.calibrated) == 0


@pytest.mark.parametrize("outputs, shift", [("real", 0.0), ("sign", 1e-3), ("sign", -1e-3)])
def test_what_closes_the_gap_in_theorem_1(two_sided, outputs, shift):
    f = counterexamples.oracle_nearby(two_sided.oracle, shift=shift)
    found = error_rates.exact(f, two_sided, outputs=outputs)
    assert not np.any(found.robust & ~found.calibrated)
    np.testing.assert_array_equal(found.calibrated, problems.crossed(two_sided))


# Theorem 2.


def test_the_transforms_of_hinge_and_logistic_loss():
    grid = np.linspace(-3, 3, 601)
    for surrogate in bounds.SURROGATES.values():
        assert surrogate.phi(np.zeros(1))[0] == pytest.approx(1)
        assert np.all(surrogate.phi(grid) >= (grid <= 0))
        for t in (0.0, 0.2, 0.7, 1.0):
            assert surrogate.psi_inverse(surrogate.psi(t)) == pytest.approx(t, abs=1e-6)
        # psi(theta) is what the wrong sign costs, in phi, where labels are flipped by (1-theta)/2.
        for noise in (0.1, 0.25, 0.4):
            risks = (1 - noise) * surrogate.phi(grid) + noise * surrogate.phi(-grid)
            assert risks.min() == pytest.approx(surrogate.least_risk(noise), abs=1e-4)
            cost = risks[grid <= 0].min() - risks.min()
            assert cost == pytest.approx(surrogate.psi(1 - 2 * noise), abs=1e-4)


@pytest.mark.parametrize("noise", [slow(0.0), 0.1])
def test_theorem_2_holds_over_the_whole_ball_or_repaired(classifiers, noise):
    problem = problems.make("one_sided", 0, NUM_POINTS)
    for found in trials.upper_bounds(classifiers[:100], problem, noise=noise).values():
        for terms in found:
            assert terms.risk - terms.least_risk <= terms.transferred + 1e-9
            assert terms.left <= terms.proved + 1e-9
            assert terms.left <= terms.repaired + 1e-9


@pytest.mark.slow
def test_theorem_2_as_stated_holds_where_no_ball_is_crossed(classifiers):
    problem = problems.make("apart", 0, NUM_POINTS)
    for found in trials.upper_bounds(classifiers[:60], problem).values():
        for terms in found:
            assert terms.left <= terms.stated + 1e-9
            assert terms.constrained == pytest.approx(terms.complete)


@pytest.mark.slow
def test_theorem_2_as_stated_is_false_where_balls_are_crossed(classifiers):
    problem = problems.make("one_sided", 0, NUM_POINTS)
    found = trials.upper_bounds(classifiers[:200], problem)["hinge"]
    assert any(terms.left > terms.stated + 0.05 for terms in found)


@pytest.mark.parametrize("f, robust", [("across", 0.0), ("tilted", 1.0)])
def test_theorem_2_promises_nothing_for_two_points(f, robust):
    f, problem = getattr(counterexamples, f)(), counterexamples.two_points()
    for terms in bounds.terms(f, problem).values():
        assert terms.calibrated == 1 and terms.robust == robust
        assert terms.stated < 1e-4
        assert terms.left <= min(terms.proved, terms.repaired)


# Learned boundaries.


@pytest.fixture(scope="module")
def trained():
    """Networks of one seed by problem and objective, and what is measured of them."""
    tried = ("unconstrained", "general")
    found = {}
    for name, objective in itertools.product(("two_sided", "apart"), tried):
        train, test = problems.make(name, 0, 100), problems.make(name, 1, 150)
        params = learned.fit(objective, train, seeds=(0,), num_steps=300)
        found[name, objective] = params, learned.measure(params, 0, train, test)
    return found


@pytest.fixture(scope="module")
def initial():
    return jax.jit(plane_objectives.init)(jax.random.key(0))


@pytest.mark.slow
def test_the_constraint_keeps_the_boundary_where_balls_are_crossed(trained):
    distance = {o: m.distance for (name, o), (_, m) in trained.items() if name == "two_sided"}
    assert distance["general"] < 0.15
    assert distance["unconstrained"] > 2 * distance["general"]
    measured = {o: m for (name, o), (_, m) in trained.items() if name == "two_sided"}
    assert measured["general"].calibrated < measured["unconstrained"].calibrated
    # The paper's section 4 says that R_rob falls too. It rises: that is what crossed balls cost.
    assert measured["general"].robust > measured["unconstrained"].robust
    assert measured["general"].calibrated >= measured["general"].crossed


@pytest.mark.slow
def test_the_constraint_is_inactive_where_no_ball_is_crossed(trained):
    params = [trained["apart", o][0]["classifier"] for o in ("general", "unconstrained")]
    jax.tree.map(np.testing.assert_array_equal, *params)


def test_a_learned_boundary_has_a_distance():
    problem = problems.make("apart", 0, 10)
    above = learned.boundary_distances(lambda x: problem.oracle(x) - 0.05, problem)
    np.testing.assert_allclose(above, 0.5, atol=0.02)  # 0.05 is half of epsilon.
    assert np.all(learned.boundary_distances(problem.oracle, problem) == 0)


@pytest.mark.slow
def test_the_search_takes_the_worst_allowed_offset(initial):
    deltas = jnp.asarray(0.1 * error_rates.offsets(5), jnp.float32)
    points = jnp.asarray([[0.3, 0.6], [0.7, 0.2]])
    labels = jnp.asarray([1.0, -1.0])
    allowed = jax.random.bernoulli(jax.random.key(1), 0.5, (2, 25)).at[:, 12].set(True)
    batch = plane_objectives.Batch(points, labels, deltas, allowed)
    values = plane_objectives.output(initial["classifier"], points[:, None] + deltas[None])
    products = np.where(allowed, values * labels[:, None], np.inf)
    worst = plane_objectives.search(initial["classifier"], batch, labels, allowed)
    np.testing.assert_allclose(worst, points + deltas[products.argmin(axis=1)])


@pytest.mark.slow
def test_cat_without_perturbation_is_its_weighted_cross_entropy(initial):
    points, labels = jnp.asarray([[0.3, 0.6], [0.7, 0.2]]), jnp.asarray([1.0, -1.0])
    batch = plane_objectives.Batch(points, labels, jnp.full((1, 2), 1e-6), jnp.ones((2, 1), bool))
    margins = plane_objectives.output(initial["classifier"], points) * labels
    natural = plane_objectives.phi(margins)
    # x' and x'_cali are x: both divergences are 0, and g's cross-entropy is beta1 phi.
    expected = natural * (1 - jnp.exp(-natural)) + 0.3 * natural
    np.testing.assert_allclose(
        jax.jit(plane_objectives.Cat(0.3))(initial, batch), expected, rtol=1e-4
    )


# The command.

SMALL = Budget(
    num_classifiers=12, num_points=20, network_seeds=(0,), num_train=24, num_test=24, num_steps=3
)


@pytest.mark.slow
def test_the_command_writes_its_files(tmp_path):
    page = write(tmp_path, SMALL)
    assert (tmp_path / "theory.md").read_text() == page
    assert "12 random piecewise linear classifiers" in page
    with open(tmp_path / "theory.csv", newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert {line["part"] for line in lines} == {
        "theorem1",
        "oracle_nearby",
        "theorem2",
        "across",
        "tilted",
        "learned",
    }
    (across,) = (
        float(line["value"])
        for line in lines
        if (line["part"], line["case"], line["quantity"]) == ("across", "hinge", "calibrated")
    )
    assert across == 1
    pictures = sorted(path.name for path in tmp_path.glob("*.png"))
    assert pictures == [
        "theory_balls.png",
        "theory_boundaries.png",
        "theory_bounds.png",
        "theory_counterexamples.png",
    ]
    assert all(path.stat().st_size > 20_000 for path in tmp_path.glob("*.png"))
    assert (tmp_path / "theory.html").read_text().count("<img") == 4


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(monkeypatch, capsys):
    monkeypatch.setattr(theory_command, "write", lambda folder: pytest.fail("it computed"))
    monkeypatch.setattr(sys, "argv", ["theory", "--out=/proc/none"])
    assert theory_command.main() == 2
    errors = capsys.readouterr().err
    assert errors.startswith("error: --out is /proc/none") and errors.count("\n") == 1


@pytest.mark.slow
def test_computing_imports_no_matplotlib():
    code = (
        "import sys, cat_jax.theory.summary, cat_jax.theory.text; "
        "sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
