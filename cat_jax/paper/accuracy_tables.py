"""The paper's tables of accuracies under attacks, as data."""

from collections.abc import Iterable
from typing import Any

from cat_jax.paper.rows import ALL_OF_MNIST, BETA1, FIVE, ONE, RELEASED, Row, Table

CIFAR_COLUMNS = ("natural", "fgsm", "pgd20", "pgd100", "cw_inf", "average")


def mnist() -> Table:
    """Table 1."""
    methods = {"AT": "at", "TRADES": "trades", "CAT_cent": "cat_cent", "CAT_cw": "cat_cw"}
    rows = tuple(
        Row(
            f"{name}({epsilon})",
            "mnist",
            variant,
            {"attack.epsilon": epsilon} | ALL_OF_MNIST | RELEASED,
            FIVE,
            note="The paper reports that its training loss does not fall."
            if name + epsilon == "AT0.4"
            else "",
        )
        for name, variant in methods.items()
        for epsilon in ("0.3", "0.4")
    )
    return Table(
        "mnist",
        "Table 1: MNIST, four convolutions; the value beside a name is epsilon in training",
        rows,
        ("natural", "pgd20_unclipped", "pgd100_unclipped"),
        note="Tested at epsilon 0.3. The published attack never clips to [0, 1], so its PGD is our "
        "pgd20_unclipped. Its threat model differs from that of pgd20.",
    )


def _cat(config: str, beta1s: Iterable[float], seeds: tuple[int, ...], **fields: Any) -> list[Row]:
    return [
        Row(
            f"CAT_{loss}(beta1={beta1:g})",
            config,
            f"cat_{loss}",
            {} if beta1 == 0.05 else {BETA1: beta1},
            seeds,
            **fields,
        )
        for loss in ("cent", "cw")
        for beta1 in beta1s
    ]


def _baselines(config: str) -> list[Row]:
    wide = config == "wrn_cifar10"
    note = "The paper copies this row from FAT's, which attacks at 0.031. So do we." if wide else ""
    return [
        Row("AT", config, "at"),
        Row("TRADES(beta=6)", config, "trades"),
        Row("MART(lambda=5)", config, "mart"),
        Row("FAT(beta=6)", config, "fat", {"test.epsilon": "0.031"} if wide else {}, note=note),
    ]


def white_box(name: str, title: str, config: str) -> Table:
    """Tables 2 and 3: one network under the white-box attacks."""
    rows = (
        *_baselines(config),
        *_cat(config, (0.05, 0.1), FIVE),
        *_cat(config, (0.3,), FIVE),
    )
    note = (
        "`average` is the mean of the columns before it; the paper's own differs by up to 0.07. "
        "The paper chose every checkpoint on the test set."
    )
    return Table(name, title, rows, CIFAR_COLUMNS, note=note)


def black_box() -> Table:
    """Table 4."""
    rows = []
    for config, network in (("preact_cifar10", "ResNet"), ("wrn_cifar10", "WRN")):
        baselines = [row for row in _baselines(config) if (row.variant, network) != ("fat", "WRN")]
        for row in (*baselines, *_cat(config, (0.05, 0.1), FIVE)):
            published = row.label if row.variant.startswith("cat") else row.label.partition("(")[0]
            label = f"{row.label}, {network}"
            rows.append(
                Row(label, config, row.variant, row.overrides, row.seeds, published=published)
            )
    return Table(
        "black_box",
        "Table 4: Square on CIFAR-10, 5,000 queries",
        tuple(rows),
        ("square",),
        note="The paper has no number for FAT on WideResNet.",
    )


def cifar100() -> Table:
    """Table 7."""
    rows = (Row("AT", "preact_cifar100", "at"), *_cat("preact_cifar100", (0.05, 0.1), ONE))
    title = "Table 7: CIFAR-100, PreAct ResNet-18"
    return Table("cifar100", title, rows, CIFAR_COLUMNS)


def tradeoff() -> Table:
    """The trade-off of section 5.2.4."""
    rows = (
        Row(
            "CAT_cw(beta1=0.3)",
            "preact_cifar10",
            "cat_cw",
            {BETA1: 0.3},
            FIVE,
            table="text",
            published="CAT_cw(beta=5,beta1=0.3)",
        ),
        Row(
            "TRADES(beta=1)",
            "preact_cifar10",
            "trades",
            {"method.beta": 1.0},
            table="text",
            published="TRADES",
            note="The paper copies two numbers from TRADES without naming their weight. We read it "
            "as beta 1.",
        ),
    )
    return Table(
        "trades_tradeoff",
        "Section 5.2.4: the trade-off of CAT beside that of TRADES",
        rows,
        ("natural", "pgd20", "natural+pgd20"),
    )


def adaptation() -> Table:
    """The networks behind Figure 7."""
    name = "cifar10_preact_resnet18"
    fat = Row("FAT(beta=6)", "preact_cifar10", "fat", table=name, note="Instance-level.")
    return Table(
        "adaptation",
        "Figure 7: pixel-level (CAT) against instance-level adaptation (FAT), CIFAR-10",
        (fat, *_cat("preact_cifar10", (0.05, 0.1), FIVE, table=name)),
        CIFAR_COLUMNS,
        note="The paper's figure is an illustration in the plane. These rows are the networks that "
        "the two kinds of adaptation train.",
    )
