"""The sentences of the paper, and what its numbers and ours say of each."""

from cat_jax.paper import cells, table_checks
from cat_jax.paper.catalogue import TABLES
from cat_jax.paper.sentences import CLAIMS
from cat_jax.paper.sheet import Asked
from cat_jax.paper.verdicts import Key, Look, Value, judge
from cat_jax.report.render import Grid

USED = tuple(
    TABLES[name]
    for name in (
        *(
            "mnist",
            *table_checks.NETWORKS,
            "black_box",
            "cifar100",
            "beta",
            "beta1",
            "larger_epsilon",
        ),
        *("ablation_components", "ablation_losses", "mask_visualisation", "trades_tradeoff"),
    )
)
HEAD = ("where", "claim", "read as", "the paper's numbers", "evidence", "our numbers", "evidence")


def published(key: Key) -> Value | None:
    """A number of the paper; its tolerance is the standard deviation, where one is given."""
    table = TABLES[key.table]
    for row in table.rows:
        if row.label == key.row and (found := cells.published(row, table).get(key.metric)):
            return Value(found.mean, found.std or 0.0, key.row)
    return None


def ours(asked: Asked) -> Look:
    """Looks numbers up among whole runs; with a scale below 1, among those of that length."""
    known: dict[tuple[str, str], cells.Line] = {}

    def look(key: Key) -> Value | None:
        table = TABLES[key.table]
        place = key.table, key.row
        if place not in known:
            row = next(row for row in table.rows if row.label == key.row)
            known[place] = cells.lines(row, table, asked.exact(row, table))[0]
        cell = known[place].cells.get(key.metric)
        return Value(cell.mean, cell.tolerance(), key.row) if isinstance(cell, cells.Cell) else None

    return look


def grid(asked: Asked) -> Grid:
    """Every claim with the verdict on the paper's own numbers, and on ours."""
    look = ours(asked)
    body = []
    for claim in CLAIMS:
        theirs, own = judge(claim.check(published)), judge(claim.check(look))
        said = [claim.where, claim.quote, claim.reading]
        body.append([*said, theirs.word, theirs.evidence, own.word, own.evidence])
    scale = "whole runs" if asked.scale == 1 else f"SCALED runs, {asked.scale:g} of the training"
    notes = [
        "Each verdict is computed: contradicted if one of the comparisons that the sentence "
        "implies fails, supported if all hold, not decidable if one lacks a number or lies within "
        "the tolerance: standard deviations over seeds and, of ours, half the 95% interval.",
        f"Ours are {scale} in {asked.folder}, as their rows have them.",
    ]
    return Grid("claims", "Sentences of the paper, held against numbers", HEAD, body, notes)
