"""The checkable sentences of the paper, as data."""

import dataclasses
from collections.abc import Callable

from cat_jax.paper import figure_checks, table_checks
from cat_jax.paper.verdicts import Comparison, Look

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
        figure_checks.at_loses_natural,
    ),
    Claim(
        "5.1.2",
        "higher natural accuracy and robust accuracy compared with standard adversarial "
        "training (MNIST)",
        "the best of CAT's rows against AT(0.3)",
        table_checks.mnist_against_at,
    ),
    Claim(
        "5.1.2",
        "with larger epsilon=0.4, adversarial robustness can be boosted further",
        "CAT(0.4) against CAT(0.3)",
        table_checks.mnist_larger,
    ),
    Claim(
        "Table 1",
        "the training loss fails in decrease (AT(0.4))",
        "below twice chance",
        table_checks.mnist_at,
    ),
    Claim(
        "5.1.2",
        "the best performance on both natural accuracy and robust accuracy under all "
        "attacks except for FGSM",
        OF_METHOD,
        table_checks.best_but_fgsm,
    ),
    Claim(
        "5.1.2",
        "except for FGSM",
        "a baseline is best under FGSM, on both networks",
        table_checks.fgsm_not_best,
    ),
    Claim(
        "5.1.2",
        "with beta1=0.3, improves natural accuracy with a large margin while keeps "
        "comparable performance",
        f"{table_checks.LARGE:g} points above every baseline; robust accuracy no "
        f"more than {table_checks.COMPARABLE:g} below the weakest one",
        table_checks.large_beta1,
    ),
    Claim(
        "5.1.2",
        "our method achieves high Avg value",
        f"{OF_METHOD}; average recomputed",
        table_checks.average,
    ),
    Claim(
        "5.1.2",
        "smaller accuracy under stronger attacks, i.e. PGD-100 and CW, than weaker "
        "attacks, i.e. FGSM and PGD-20",
        "every row of CAT",
        table_checks.stronger_attacks,
    ),
    Claim(
        "5.1.3",
        "the best accuracy among all baselines under square attack",
        OF_METHOD,
        table_checks.best_square,
    ),
    Claim(
        "5.1.3",
        "accuracy under black-box attack is lower than under white-box attack like PGD and CW",
        "Square against PGD-20 and C&W, every row of CAT",
        table_checks.square_is_lower,
    ),
    Claim(
        "5.2.1",
        "soft masks have high values on the background but have low values on the digit",
        "mean of M",
        figure_checks.masks,
    ),
    Claim(
        "5.2.2",
        "a clearly increasing trend on robust accuracy with the increase of epsilon",
        "PGD-100 rises at each step",
        figure_checks.robust_rises,
    ),
    Claim(
        "5.2.2",
        "the sum of robust accuracy and natural accuracy has a slightly decreasing trend",
        "from 8/255 to 12/255",
        figure_checks.sum_falls,
    ),
    Claim(
        "5.2.2",
        "our method's descending grade is lower than Trades and AT",
        "the same fall",
        figure_checks.falls_less,
    ),
    Claim(
        "5.2.3",
        "after removing soft mask M, there is a clearly decrease in natural accuracy "
        "and overall performance",
        "A2 against CAT(beta1=0.05)",
        figure_checks.without_mask,
    ),
    Claim(
        "5.2.3",
        "after removing weighted cross-entropy loss, there is a slight decrease in "
        "natural accuracy",
        "A1 against A2",
        figure_checks.without_weight,
    ),
    Claim(
        "5.2.3",
        "KL divergence is less effective in achieving robustness",
        "PGD-10 at both beta1",
        figure_checks.kl_is_weaker,
    ),
    Claim(
        "5.2.4",
        "when increasing the value of beta1, natural accuracy has remarkable growth",
        "at each step of beta1",
        table_checks.beta1_natural,
    ),
    Claim(
        "5.2.4",
        "PGD+Natural accuracy increases when beta1 is from 0.01 to 0.1",
        "at each step of beta1",
        table_checks.beta1_sum,
    ),
    Claim(
        "5.2.4",
        "continuously increase beta1, there is a large drop in robust accuracy",
        f"more than {table_checks.LARGE:g} points from 0.1 to 0.3",
        table_checks.beta1_robust,
    ),
    Claim(
        "5.2.4",
        "much better than the trade-off achieved by Trades",
        "higher in both",
        table_checks.tradeoff,
    ),
    Claim(
        "D",
        "our method improves natural accuracy and robust accuracy compared with AT (CIFAR-100)",
        "the best of CAT's rows",
        table_checks.cifar100_best,
    ),
    Claim(
        "D",
        "our method improves natural accuracy and robust accuracy compared with AT (CIFAR-100)",
        "every row of CAT",
        table_checks.cifar100_each,
    ),
    Claim(
        "E",
        "larger beta value leads to a larger robust accuracy but with a smaller natural accuracy",
        "at each step of beta",
        table_checks.beta_trades,
    ),
    Claim(
        "E",
        "adapting beta1 can achieve a better trade-off than adapting beta",
        "natural + PGD-20, mean over the settings but the shared one",
        table_checks.beta1_is_better,
    ),
    Claim(
        "6",
        "the best performance under both white-box and black-box attacks among all considered",
        f"{OF_METHOD}, FGSM included",
        table_checks.best_everywhere,
    ),
)
