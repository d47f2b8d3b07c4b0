"""Sentences of the paper: each verdict comes out both ways on made-up numbers."""

import pytest

from cat_jax.paper import claims
from cat_jax.paper.verdicts import (
    CONTRADICTED,
    SUPPORTED,
    UNDECIDED,
    Comparison,
    Key,
    Value,
    higher,
    judge,
)


def by_quote(start):
    (found,) = [claim for claim in claims.CLAIMS if claim.quote.startswith(start)]
    return found


def verdict(start, look):
    return judge(by_quote(start).check(look)).word


def test_square_is_lower_is_contradicted_by_the_papers_own_tables():
    start = "accuracy under black-box attack is lower"
    assert verdict(start, claims.published) == CONTRADICTED

    def look(key):
        return Value(40.0 if key.metric == "square" else 50.0, 0.5, key.row)

    assert verdict(start, look) == SUPPORTED


@pytest.mark.parametrize(
    "start, want",
    [
        ("higher natural accuracy and robust accuracy compared with standard", SUPPORTED),
        ("the best accuracy among all baselines under square", SUPPORTED),
        ("except for FGSM", CONTRADICTED),
        ("much better than the trade-off", SUPPORTED),
        ("a clearly increasing trend", UNDECIDED),
        ("larger beta value leads", SUPPORTED),
        ("the best performance under both white-box and black-box", CONTRADICTED),
    ],
)
def test_verdicts_on_the_published_numbers(start, want):
    assert verdict(start, claims.published) == want


@pytest.mark.parametrize("claim", claims.CLAIMS, ids=lambda c: f"{c.where}-{c.quote[:20]}")
def test_every_claim_can_be_decided_either_way(claim):
    """Every number of its own: the words of some numbers, and of the same numbers mirrored."""
    seen = {}

    def record(key):
        return Value(seen.setdefault(key, 30.0 + 7.0 * len(seen) ** 2), 0.0, key.row)

    comparisons = claim.check(record)
    assert seen, "a claim looks numbers up"
    assert all(comparison.margin is not None for comparison in comparisons)
    words = {comparison.verdict for comparison in comparisons}
    mirrored = claim.check(lambda key: Value(-seen[key], 0.0, key.row))
    assert words | {c.verdict for c in mirrored} >= {SUPPORTED, CONTRADICTED}
    assert judge(claim.check(lambda key: None)).word == UNDECIDED


def test_a_verdict_needs_more_than_chance_and_every_number():
    low, high = Value(50.0, 0.3, "a"), Value(50.4, 0.3, "b")
    assert higher(high, low).verdict == UNDECIDED
    assert higher(high._replace(mean=50.5), low).verdict == SUPPORTED
    assert higher(low, high._replace(mean=50.5)).verdict == CONTRADICTED
    assert higher(low, low).verdict == UNDECIDED, "equal numbers decide nothing"
    holds, fails = Comparison("x", 1.0), Comparison("y", -1.0)
    assert judge([holds]).word == SUPPORTED
    assert judge([holds, Comparison("", None)]).word == UNDECIDED
    assert judge([holds, fails, Comparison("", None)]).word == CONTRADICTED
    assert "fails most: y" in judge([holds, fails]).evidence


def test_all_numbers_that_claims_read_are_of_rows_and_columns_that_there_are():
    def look(key):
        table = claims.TABLES[key.table]
        assert table in claims.USED, key
        assert key.row in {row.label for row in table.rows} and key.metric in table.columns, key
        return Value(1.0, 0.0, key.row)

    for claim in claims.CLAIMS:
        claim.check(look)
    assert claims.published(Key("mnist", "CAT_cw(0.4)", "pgd20_unclipped")).mean == 97.1
