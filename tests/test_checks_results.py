"""Flags held together: each finding where it should be, in both directions, and nowhere else."""

import numpy as np
import pytest

from cat_jax.errors import UsageError
from cat_jax.evaluation import checks
from cat_jax.evaluation.checks.comparison import sign_test

N = 1000


def right(*broken, of=N):
    """Flags of `of` examples, all right but those of the given slices."""
    flags = np.ones(of, bool)
    for part in broken:
        flags[part] = False
    return flags


def first(count, of=N):
    return right(slice(count), of=of)


HONEST = {
    "natural": first(100),
    "fgsm": first(300),
    "pgd10": first(380),
    "pgd20": first(400),
    "pgd100": first(402),
    "pgd20_unclipped": first(410),
    "pgd100_unclipped": first(411),
    "cw_inf": first(405),
    "square": first(350),
    "pgd40_restarts5": first(404),
    "apgd_ce": first(406),
    "apgd_t": first(420),
    "fab_t": first(420),
    "standard": first(420),
}
NAMES = [
    "attacks_lower_accuracy",
    "more_steps_are_stronger",
    "more_steps_are_stronger_unclipped",
    "pgd_has_converged",
    "gradient_attacks_suffice",
    "standard_is_strongest",
]


def found(flags):
    return {finding.name: finding for finding in checks.compare(flags)}


def test_an_honest_evaluation_passes_all_in_order():
    findings = checks.compare(HONEST)
    assert [f.name for f in findings] == NAMES
    assert all(f.passed for f in findings), findings
    assert not any("\n" in f.text for f in findings)


@pytest.mark.parametrize(
    "names, want",
    [
        ([], []),
        (["natural"], []),
        (["pgd20"], []),
        (["square"], []),
        (["standard"], []),
        (
            ["natural", "square"],
            ["attacks_lower_accuracy"],
        ),  # Square has no gradients to be held against.
        (["natural", "pgd20"], ["attacks_lower_accuracy"]),
        (["pgd20", "pgd100"], ["more_steps_are_stronger", "pgd_has_converged"]),
        (["pgd20", "pgd100_unclipped"], []),
        (["pgd20_unclipped", "pgd100_unclipped"], ["more_steps_are_stronger_unclipped"]),
        (["square", "pgd20_unclipped"], []),
        (["square", "pgd20"], ["gradient_attacks_suffice"]),
        (["standard", "square"], ["standard_is_strongest"]),
        (["standard", "pgd20"], ["standard_is_strongest"]),
        (["standard", "pgd20_unclipped"], []),
        (["standard", "fab_t"], ["gradient_attacks_suffice"]),
    ],
)
def test_a_finding_is_there_if_its_attacks_are(names, want):
    assert [f.name for f in checks.compare({name: HONEST[name] for name in names})] == want


@pytest.mark.parametrize("name", ["fgsm", "pgd20_unclipped"])
def test_no_attack_leaves_more_right_than_there_were(name):
    finding = found(HONEST | {name: first(80)})["attacks_lower_accuracy"]
    assert not finding.passed
    assert finding.text.startswith(f"Accuracy under {name} is 2.00 points above natural")


def test_the_attack_nearest_to_natural_is_named():
    text = found(HONEST)["attacks_lower_accuracy"].text
    assert "fgsm lowers accuracy least: 20.00 points below natural accuracy." in text
    # Other examples, as many: not above.
    assert found({"natural": first(100), "fgsm": right(slice(100, 200))})[
        "attacks_lower_accuracy"
    ].passed


@pytest.mark.parametrize("more, passed", [(0, True), (20, True), (21, False), (600, False)])
def test_pgd20_may_not_leave_much_for_more_steps(more, passed):
    """2 points are 20 of the examples."""
    finding = found({"pgd20": first(400), "pgd100": first(400 + more)})["pgd_has_converged"]
    assert finding.passed == passed
    text = f"pgd100 lowers accuracy by {more / 10:.2f} points beyond pgd20."
    assert finding.text.startswith(text)
    assert ("Report PGD-100" in finding.text) == (not passed)


@pytest.mark.parametrize("suffix", ["", "_unclipped"])
@pytest.mark.parametrize(
    "wins, losses, passed",
    [(0, 0, True), (30, 0, True), (10, 10, True), (0, 6, True), (0, 7, False), (10, 40, False)],
)
def test_more_steps_may_not_do_worse(suffix, wins, losses, passed):
    """1 / 2 ** 6 is above 0.01, and 1 / 2 ** 7 is not."""
    long = right(slice(200), slice(300, 300 + wins))
    short = right(slice(200), slice(400, 400 + losses))
    finding = found({f"pgd20{suffix}": short, f"pgd100{suffix}": long})[
        f"more_steps_are_stronger{suffix}"
    ]
    assert finding.passed == passed
    counts = f"Only pgd100{suffix} fools {wins} images, only pgd20{suffix} fools {losses} (p"
    assert finding.text.startswith(counts)
    assert ("More steps make the attack weaker" in finding.text) == (not passed)


@pytest.mark.parametrize(
    "wins, losses, p",
    [
        (0, 0, 1.0),
        (5, 0, 1.0),
        (0, 1, 1 / 2),
        (0, 10, 1 / 1024),
        (1, 3, 5 / 16),
        (2, 2, 11 / 16),
        (1, 9, 11 / 1024),
    ],
)
def test_sign_test_in_closed_form(wins, losses, p):
    assert sign_test(wins, losses) == p


@pytest.mark.parametrize("n", [1, 7, 5001])
def test_sign_test_splits_odd_tosses_in_halves(n):
    assert sign_test(n // 2, n - n // 2) == 0.5
    assert sign_test(n, 0) == 1.0


@pytest.mark.parametrize("of, searched, passed", [(1000, 2, True), (1000, 3, False)])
@pytest.mark.parametrize("cascade", [True, False])
def test_what_only_a_search_breaks_is_a_sign_of_masking(of, searched, passed, cascade):
    broken, by_search = slice(100), slice(500, 500 + searched)
    if cascade:
        flags = {"fab_t": right(broken), "standard": right(broken, by_search)}
    else:
        flags = {"square": right(by_search), "pgd20": right(broken), "fgsm": first(50)}
    finding = found(flags)["gradient_attacks_suffice"]
    assert finding.passed == passed
    assert finding.text.startswith(f"Square fools {searched} of {of} images that withstand")
    assert ("masking" in finding.text) == (not passed)


def test_few_examples_are_chance_and_a_small_share_is_allowed():
    def search(count, of):
        flags = {"square": right(slice(50, 50 + count), of=of), "pgd20": first(10, of=of)}
        return found(flags)["gradient_attacks_suffice"].passed

    assert search(2, 100) and not search(3, 100)
    assert search(20, 10_000) and not search(21, 10_000)


def test_square_is_held_against_all_gradients_of_its_own_ball():
    flags = {"square": right(slice(500, 550)), "pgd20": first(100), "natural": first(100)}
    unclipped = {"pgd20_unclipped": right(slice(500, 550))}
    for others in ({}, unclipped):
        finding = found(flags | others)["gradient_attacks_suffice"]
        assert not finding.passed
        assert "50 of 1000 images that withstand pgd20." in finding.text
    for name in ("pgd40_restarts5", "apgd_ce", "fab_t", "cw_inf"):
        assert found(flags | {name: right(slice(490, 560))})["gradient_attacks_suffice"].passed


@pytest.mark.parametrize("name, of_its_ball", [("pgd20", 1), ("square", 1), ("pgd20_unclipped", 0)])
@pytest.mark.parametrize("missed, passed", [(0, True), (5, True), (6, False)])
def test_the_standard_suite_is_the_strongest(name, of_its_ball, missed, passed):
    flags = {"standard": first(100), name: right(slice(200, 200 + missed)), "fgsm": first(90)}
    finding = found(flags)["standard_is_strongest"]
    assert finding.passed == (passed or not of_its_ball)
    assert finding.text.startswith(f"Other attacks fool {missed * of_its_ball} of 1000 images")


def conditions(**attacks):
    """Conditions by attack: each in the ball of 0.15, but for what is given."""
    ball = {"norm": "linf", "epsilon": 0.15, "clipped": True, "step_size": 0.01}
    every = {name: ball | {"attack": name} for name in HONEST}
    return {name: own | attacks.get(name, {}) for name, own in every.items()}


def test_with_conditions_only_equal_ones_are_compared():
    assert [f.name for f in checks.compare(HONEST, conditions())] == NAMES
    unlike = conditions(pgd100={"epsilon": 0.05}, pgd100_unclipped={"step_size": 0.02})
    assert [f.name for f in checks.compare(HONEST, unlike)] == [
        *("attacks_lower_accuracy", "gradient_attacks_suffice", "standard_is_strongest")
    ]
    # C&W in a larger ball breaks more: it does not speak against the standard suite.
    flags = {"standard": first(100), "cw_inf": first(300), "pgd20": first(90)}
    assert not found(flags)["standard_is_strongest"].passed
    larger = conditions(cw_inf={"epsilon": 0.3})
    (finding,) = checks.compare(flags, {name: larger[name] for name in flags})
    assert finding.passed and finding.attacks == ("standard", "pgd20")


def test_the_suite_with_fewer_queries_is_compared_under_its_own_name():
    flags = {"fab_t": first(100), "standard_q1000": first(150), "pgd20": first(90)}
    square, standard = checks.compare(flags)
    assert square.attacks == ("fab_t", "standard_q1000") and not square.passed
    assert standard.attacks == ("standard_q1000", "pgd20")


def test_weaker_than_others_by_few_examples_is_chance():
    assert found({"standard": right(of=10), "pgd20": first(2, of=10)})[
        "standard_is_strongest"
    ].passed
    assert not found({"standard": right(of=10), "pgd20": first(3, of=10)})[
        "standard_is_strongest"
    ].passed


@pytest.mark.parametrize(
    "flags, form",
    [
        ({"natural": right(), "pgd20": right(of=999)}, r"bool\[1000\], pgd20: bool\[999\]"),
        ({"natural": np.ones((2, 2), bool)}, r"bool\[2, 2\]"),
        ({"natural": np.array([], bool)}, r"bool\[0\]"),
        ({"natural": np.array([1, -1, 0], np.int8)}, r"int8\[3\]"),
    ],
)
def test_flags_of_other_forms_are_refused_in_one_line(flags, form):
    with pytest.raises(UsageError, match=form) as refused:
        checks.compare(flags)
    assert "\n" not in str(refused.value)
