"""The checkable sentences of the paper, and what its numbers and ours say of each."""

import dataclasses
from collections.abc import Callable

from cat_jax.report import cells, claim_checks
from cat_jax.report.catalogue import TABLES
from cat_jax.report.render import Grid
from cat_jax.report.sheet import Asked
from cat_jax.report.verdicts import Comparison, Key, Look, Value, judge

Check = Callable[[Look], list[Comparison]]


@dataclasses.dataclass(frozen=True)
class Claim:
    """A sentence.

    Attributes:
      where: the section.
      quote: a few of its words.
      reading: how it is understood, where it can be otherwise.
      check: the comparisons that it implies, of any set of numbers.
    """

    where: str
    quote: str
    reading: str
    check: Check


OF_METHOD = "the best of CAT's rows against the best baseline"
CLAIMS = (
    Claim(
        "1",
        "enlarged rapidly when training with larger epsilon",
        "AT's natural accuracy falls at each step of epsilon",
        claim_checks.at_loses_natural,
    ),
    Claim(
        "5.1.2",
        "higher natural accuracy and robust accuracy compared with standard adversarial "
        "training (MNIST)",
        "the best of CAT's rows against AT(0.3)",
        claim_checks.mnist_against_at,
    ),
    Claim(
        "5.1.2",
        "with larger epsilon=0.4, adversarial robustness can be boosted further",
        "CAT(0.4) against CAT(0.3)",
        claim_checks.mnist_larger,
    ),
    Claim(
        "Table 1",
        "the training loss fails in decrease (AT(0.4))",
        "below twice chance",
        claim_checks.mnist_at,
    ),
    Claim(
        "5.1.2",
        "the best performance on both natural accuracy and robust accuracy under all "
        "attacks except for FGSM",
        OF_METHOD,
        claim_checks.best_but_fgsm,
    ),
    Claim(
        "5.1.2",
        "except for FGSM",
        "a baseline is best under FGSM, on both networks",
        claim_checks.fgsm_not_best,
    ),
    Claim(
        "5.1.2",
        "with beta1=0.3, improves natural accuracy with a large margin while keeps "
        "comparable performance",
        f"{claim_checks.LARGE:g} points above every baseline; robust accuracy no "
        f"more than {claim_checks.COMPARABLE:g} below the weakest one",
        claim_checks.large_beta1,
    ),
    Claim(
        "5.1.2",
        "our method achieves high Avg value",
        f"{OF_METHOD}; average recomputed",
        claim_checks.average,
    ),
    Claim(
        "5.1.2",
        "smaller accuracy under stronger attacks, i.e. PGD-100 and CW, than weaker "
        "attacks, i.e. FGSM and PGD-20",
        "every row of CAT",
        claim_checks.stronger_attacks,
    ),
    Claim(
        "5.1.3",
        "the best accuracy among all baselines under square attack",
        OF_METHOD,
        claim_checks.best_square,
    ),
    Claim(
        "5.1.3",
        "accuracy under black-box attack is lower than under white-box attack like PGD and CW",
        "Square against PGD-20 and C&W, every row of CAT",
        claim_checks.square_is_lower,
    ),
    Claim(
        "5.2.1",
        "soft masks have high values on the background but have low values on the digit",
        "mean of M",
        claim_checks.masks,
    ),
    Claim(
        "5.2.2",
        "a clearly increasing trend on robust accuracy with the increase of epsilon",
        "PGD-100 rises at each step",
        claim_checks.robust_rises,
    ),
    Claim(
        "5.2.2",
        "the sum of robust accuracy and natural accuracy has a slightly decreasing trend",
        "from 8/255 to 12/255",
        claim_checks.sum_falls,
    ),
    Claim(
        "5.2.2",
        "our method's descending grade is lower than Trades and AT",
        "the same fall",
        claim_checks.falls_less,
    ),
    Claim(
        "5.2.3",
        "after removing soft mask M, there is a clearly decrease in natural accuracy "
        "and overall performance",
        "A2 against CAT(beta1=0.05)",
        claim_checks.without_mask,
    ),
    Claim(
        "5.2.3",
        "after removing weighted cross-entropy loss, there is a slight decrease in "
        "natural accuracy",
        "A1 against A2",
        claim_checks.without_weight,
    ),
    Claim(
        "5.2.3",
        "KL divergence is less effective in achieving robustness",
        "PGD-10 at both beta1",
        claim_checks.kl_is_weaker,
    ),
    Claim(
        "5.2.4",
        "when increasing the value of beta1, natural accuracy has remarkable growth",
        "at each step of beta1",
        claim_checks.beta1_natural,
    ),
    Claim(
        "5.2.4",
        "PGD+Natural accuracy increases when beta1 is from 0.01 to 0.1",
        "at each step of beta1",
        claim_checks.beta1_sum,
    ),
    Claim(
        "5.2.4",
        "continuously increase beta1, there is a large drop in robust accuracy",
        f"more than {claim_checks.LARGE:g} points from 0.1 to 0.3",
        claim_checks.beta1_robust,
    ),
    Claim(
        "5.2.4",
        "much better than the trade-off achieved by Trades",
        "higher in both",
        claim_checks.tradeoff,
    ),
    Claim(
        "D",
        "our method improves natural accuracy and robust accuracy compared with AT (CIFAR-100)",
        "the best of CAT's rows",
        claim_checks.cifar100_best,
    ),
    Claim(
        "D",
        "our method improves natural accuracy and robust accuracy compared with AT (CIFAR-100)",
        "every row of CAT",
        claim_checks.cifar100_each,
    ),
    Claim(
        "E",
        "larger beta value leads to a larger robust accuracy but with a smaller natural accuracy",
        "at each step of beta",
        claim_checks.beta_trades,
    ),
    Claim(
        "E",
        "adapting beta1 can achieve a better trade-off than adapting beta",
        "natural + PGD-20, mean over the settings but the shared one",
        claim_checks.beta1_is_better,
    ),
    Claim(
        "6",
        "the best performance under both white-box and black-box attacks among all considered",
        f"{OF_METHOD}, FGSM included",
        claim_checks.best_everywhere,
    ),
)
USED = tuple(
    TABLES[name]
    for name in (
        *(
            "mnist",
            *claim_checks.NETWORKS,
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
    scale = "whole runs" if asked.scale == 1 else f"SCALED runs, {asked.scale:g} of the epochs"
    notes = [
        "Each verdict is computed: contradicted if one of the comparisons that the sentence "
        "implies fails, supported if all hold, not decidable if one lacks a number or lies within "
        "the tolerance: standard deviations over seeds and, of ours, half the 95% interval.",
        f"Ours are {scale} in {asked.folder}, as their rows have them.",
    ]
    return Grid("claims", "Sentences of the paper, held against numbers", HEAD, body, notes)
