"""The paper's figures of numbers and of masks, with the tables of the same runs, as data."""

from collections.abc import Iterable, Sequence

from cat_jax.paper.rows import ALL_OF_MNIST, BETA1, FIVE, Panel, Row, Table

# Because the ablations' figures are curves on the test split, which chooses best/ too.
ON_TEST = {"selection": "test"}


def _of_beta(loss: str, beta: int, beta1: float) -> Row:
    overrides = ({} if beta == 5 else {"method.beta": float(beta)}) | (
        {} if beta1 == 0.05 else {BETA1: beta1}
    )
    label = f"CAT_{loss}(beta={beta},beta1={beta1:g})"
    return Row(label, "preact_cifar10", f"cat_{loss}", overrides)


def _over(field: str, label: str, rows: Sequence[Row], x_scale: str) -> tuple[Panel, ...]:
    """Returns a panel for each loss of the attack, with the constants that the paper subtracts."""
    minus = {"natural": 80, "pgd20": 50, "natural+pgd20": 130}
    return tuple(
        Panel(
            f"CAT_{loss}",
            tuple(minus),
            field,
            label,
            (("", tuple(row.label for row in rows if row.variant == f"cat_{loss}")),),
            minus,
            x_scale=x_scale,
        )
        for loss in ("cent", "cw")
    )


def beta() -> Table:
    """Table 8, over beta."""
    rows = tuple(_of_beta(loss, beta, 0.05) for loss in ("cent", "cw") for beta in (5, 4, 3, 2, 1))
    title = "Table 8: impact of beta on CIFAR-10, PreAct ResNet-18"
    columns = ("natural", "pgd20", "natural+pgd20")
    return Table("beta", title, rows, columns, panels=_over("method.beta", "beta", rows, "linear"))


def beta1() -> Table:
    """Figure 6, and Table 8 over beta1."""
    grid = (0.001, 0.01, 0.05, 0.1, 0.2, 0.3)
    rows = tuple(_of_beta(loss, 5, beta1) for loss in ("cent", "cw") for beta1 in grid)
    return Table(
        "beta1",
        "Figure 6 and Table 8: impact of beta1 on CIFAR-10, PreAct ResNet-18",
        rows,
        ("natural", "pgd20", "natural+pgd20"),
        panels=_over(BETA1, "beta1 (logarithmic)", rows, "log"),
        note="The paper prints values from beta1 = 0.05 on.",
    )


def larger_epsilon() -> Table:
    """Figure 3."""
    lines = {
        "AT": ("at", {}),
        "TRADES": ("trades", {}),
        "CAT_cent": ("cat_cent", {BETA1: 0.1}),
        "CAT_cw": ("cat_cw", {BETA1: 0.1}),
    }
    rows = tuple(
        Row(
            f"{name}(epsilon={levels}/255)",
            "preact_cifar10",
            variant,
            fixed
            | (
                {} if (variant != "trades" and levels == 8) else {"attack.epsilon": f"{levels}/255"}
            ),
        )
        for name, (variant, fixed) in lines.items()
        for levels in (8, 9, 10, 11, 12)
    )
    joined = tuple((n, tuple(r.label for r in rows if r.label.startswith(f"{n}("))) for n in lines)
    return Table(
        "larger_epsilon",
        "Figure 3: training with larger epsilon on CIFAR-10, PreAct ResNet-18",
        rows,
        ("natural", "pgd100", "natural+pgd100"),
        panels=(
            _over_epsilon("Robust", "pgd100", joined),
            _over_epsilon("Robust + natural", "natural+pgd100", joined),
        ),
        note="Tested at 8/255 throughout; beta1 is 0.1. The paper prints no values.",
    )


def _over_epsilon(title: str, metric: str, lines: tuple[tuple[str, tuple[str, ...]], ...]) -> Panel:
    label = "epsilon in training, in 1/255 of the pixel range"
    return Panel(title, (metric,), "attack.epsilon", label, lines, x_unit=1 / 255)


COMPONENTS = (
    Row("A1", "preact_cifar10", "a1", ON_TEST),
    Row("A2", "preact_cifar10", "a2", ON_TEST),
    Row("CAT(beta1=0.05)", "preact_cifar10", "cat_cent", ON_TEST),
    Row("CAT(beta1=0.1)", "preact_cifar10", "cat_cent", ON_TEST | {BETA1: 0.1}),
)
LOSSES = tuple(
    Row(
        f"{name}(beta1={beta1:g})",
        "preact_cifar10",
        variant,
        ON_TEST | ({} if beta1 == 0.05 else {BETA1: beta1}),
    )
    for beta1 in (0.05, 0.1)
    for name, variant in (("CE", "cat_cent"), ("CW", "cat_cw"), ("KL", "cat_kl"))
)
PGD10 = (
    "Of the validations while training: PGD-10 with a random start, step 2/255, at the epoch with "
    "the highest sum. The paper prints curves and no values."
)


def _over_epochs(title: str, metric: str, rows: Iterable[Row]) -> Panel:
    return Panel(
        title, (metric,), "epoch", "epoch", tuple((row.label, (row.label,)) for row in rows)
    )


def ablations() -> list[Table]:
    """Figures 4 and 5, and the curves of both."""
    columns = ("natural", "pgd10", "natural+pgd10")
    ablations = COMPONENTS + tuple(row for row in LOSSES if row.variant != "cat_cent")
    return [
        Table(
            "ablation_components",
            "Figure 4: without the mask (A2), and without the weight of Eq. 8 either (A1)",
            COMPONENTS,
            columns,
            curves=True,
            panels=(
                _over_epochs("Natural", "natural", COMPONENTS),
                _over_epochs("Natural + robust", "natural+pgd10", COMPONENTS),
            ),
            note=PGD10,
        ),
        Table(
            "ablation_losses",
            "Figure 5: the loss of the training attack",
            LOSSES,
            columns,
            curves=True,
            panels=tuple(
                _over_epochs(f"beta1 = {beta1}", "pgd10", rows)
                for beta1, rows in (("0.05", LOSSES[:3]), ("0.1", LOSSES[3:]))
            ),
            note=PGD10,
        ),
        Table(
            "curves",
            "Curves of every ablation (Figures 4 and 5), PGD-10 with a random start",
            ablations,
            columns,
            curves=True,
            panels=tuple(
                _over_epochs(title, metric, ablations)
                for title, metric in (
                    ("Natural", "natural"),
                    ("Robust", "pgd10"),
                    ("Natural + robust", "natural+pgd10"),
                )
            ),
            note=PGD10,
        ),
    ]


def masks() -> Table:
    """Figure 2."""
    rows = tuple(
        Row(f"{name}(0.4)", "mnist", variant, {"attack.epsilon": "0.4"} | ALL_OF_MNIST, FIVE)
        for name, variant in (("CAT_cent", "cat_cent"), ("CAT_cw", "cat_cw"))
    )
    return Table(
        "mask_visualisation",
        "Figure 2: natural, adversarial, mask and calibrated images of MNIST",
        rows,
        ("mask_digit", "mask_background"),
        note="Mean of M in percent over test images, on the digit and around it, for the last "
        "checkpoint under the training attack at epsilon 0.4 (masks.npz).",
    )
