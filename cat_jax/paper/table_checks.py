"""What the paper's sentences on its tables imply, as comparisons of numbers."""

from cat_jax.paper.verdicts import (
    Comparison,
    Key,
    Look,
    Value,
    beats,
    best,
    combined,
    each_beats,
    higher,
    ordered,
    weaker_than,
    worst,
)

NETWORKS = ("cifar10_preact_resnet18", "cifar10_wide_resnet")
BASELINES = ("AT", "TRADES(beta=6)", "MART(lambda=5)", "FAT(beta=6)")
CAT = tuple(f"CAT_{loss}(beta1={b})" for loss in ("cent", "cw") for b in ("0.05", "0.1"))
CAT_LARGE = ("CAT_cent(beta1=0.3)", "CAT_cw(beta1=0.3)")
WHITE = ("fgsm", "pgd20", "pgd100", "cw_inf")
MNIST_PGD = ("pgd20_unclipped", "pgd100_unclipped")
COMPARABLE = 2.0  # Points: how "comparable" robust accuracy is read.
LARGE = 2.0  # Points: how "a large margin" is read.


def beta_rows(loss: str, betas: tuple[int, ...]) -> list[str]:
    """Names of the rows of table beta at beta1 = 0.05."""
    return [f"CAT_{loss}(beta={beta},beta1=0.05)" for beta in betas]


def beta1_rows(loss: str, beta1s: tuple[str, ...]) -> list[str]:
    """Names of the rows of table beta1 at beta = 5."""
    return [f"CAT_{loss}(beta=5,beta1={beta1})" for beta1 in beta1s]


def both(look: Look, table: str, rows: list[str], metric: str = "pgd20") -> Value | None:
    """Natural plus robust accuracy, the mean over rows."""
    parts = [look(Key(table, row, m)) for row in rows for m in ("natural", metric)]
    name = rows[0] if len(rows) == 1 else f"mean of {len(rows)} from {rows[0]}"
    return combined(f"{name} natural + robust", parts, [1 / len(rows)] * len(parts))


def mnist_against_at(look: Look) -> list[Comparison]:
    """CAT above adversarial training, by its best row."""
    rows = [f"CAT_{loss}({epsilon})" for loss in ("cent", "cw") for epsilon in ("0.3", "0.4")]
    return beats(look, "mnist", rows, ["AT(0.3)"], ("natural", *MNIST_PGD))


def mnist_larger(look: Look) -> list[Comparison]:
    """CAT(0.4) above CAT(0.3)."""
    pairs = [[f"CAT_{loss}(0.3)", f"CAT_{loss}(0.4)"] for loss in ("cent", "cw")]
    return [c for pair in pairs for m in MNIST_PGD for c in ordered(look, "mnist", pair, m)]


def mnist_at(look: Look) -> list[Comparison]:
    """AT(0.4) does not train."""
    chance = Value(20.0, 0.0, "twice chance")
    return [higher(chance, look(Key("mnist", "AT(0.4)", "natural")), what="natural")]


def best_but_fgsm(look: Look) -> list[Comparison]:
    """CAT best on natural images and under all attacks but FGSM."""
    metrics = ("natural", "pgd20", "pgd100", "cw_inf")
    rows = CAT + CAT_LARGE
    return [c for table in NETWORKS for c in beats(look, table, rows, BASELINES, metrics)]


def fgsm_not_best(look: Look) -> list[Comparison]:
    """A baseline best under FGSM."""
    rows = CAT + CAT_LARGE
    return [c for table in NETWORKS for c in beats(look, table, BASELINES, rows, ["fgsm"])]


def best_everywhere(look: Look) -> list[Comparison]:
    """CAT best under every attack."""
    rows = CAT + CAT_LARGE
    white = [c for table in NETWORKS for c in beats(look, table, rows, BASELINES, WHITE)]
    return white + best_square(look)


def large_beta1(look: Look) -> list[Comparison]:
    """At beta1 = 0.3 natural accuracy is far above, robust accuracy not far below."""
    made = []
    for table in NETWORKS:
        natural = (best(look, table, rows, "natural") for rows in (CAT_LARGE, BASELINES))
        made.append(higher(*natural, by=LARGE, what="natural"))
        for m in ("pgd20", "pgd100", "cw_inf"):
            ours, theirs = best(look, table, CAT_LARGE, m), worst(look, table, BASELINES, m)
            made.append(higher(ours, theirs, by=-COMPARABLE, what=m))
    return made


def average(look: Look) -> list[Comparison]:
    """CAT's average best."""
    return [c for table in NETWORKS for c in beats(look, table, CAT, BASELINES, ["average"])]


def stronger_attacks(look: Look) -> list[Comparison]:
    """Stronger attacks leave less."""
    places = [(row, row) for row in CAT + CAT_LARGE]
    return [
        comparison
        for table in NETWORKS
        for strong in ("pgd100", "cw_inf")
        for weak in ("fgsm", "pgd20")
        for comparison in weaker_than(look, places, (table, strong), (table, weak))
    ]


def best_square(look: Look) -> list[Comparison]:
    """CAT best under Square."""
    made = []
    for network, names in (("ResNet", BASELINES), ("WRN", BASELINES[:3])):
        rows, others = ([f"{name}, {network}" for name in kind] for kind in (CAT, names))
        made += beats(look, "black_box", rows, others, ["square"])
    return made


def square_is_lower(look: Look) -> list[Comparison]:
    """Square leaves less than PGD-20 and C&W."""
    made = []
    for network, table in zip(("ResNet", "WRN"), NETWORKS, strict=True):
        places = [(f"{row}, {network}", row) for row in CAT]
        for white in ("pgd20", "cw_inf"):
            made += weaker_than(look, places, ("black_box", "square"), (table, white))
    return made


def beta1_natural(look: Look) -> list[Comparison]:
    """Natural accuracy rises with beta1."""
    grid = tuple(f"{beta1:g}" for beta1 in (0.001, 0.01, 0.05, 0.1, 0.2, 0.3))
    rows = [beta1_rows(loss, grid) for loss in ("cent", "cw")]
    return [c for each in rows for c in ordered(look, "beta1", each, "natural")]


def beta1_sum(look: Look) -> list[Comparison]:
    """The sum rises up to beta1 = 0.1."""
    rows = [beta1_rows(loss, ("0.01", "0.05", "0.1")) for loss in ("cent", "cw")]
    return [c for each in rows for c in ordered(look, "beta1", each, "natural+pgd20")]


def beta1_robust(look: Look) -> list[Comparison]:
    """Robust accuracy drops beyond."""
    made = []
    for loss in ("cent", "cw"):
        large, small = (
            look(Key("beta1", row, "pgd20")) for row in beta1_rows(loss, ("0.3", "0.1"))
        )
        made.append(higher(small, large, by=LARGE, what="PGD-20"))
    return made


def tradeoff(look: Look) -> list[Comparison]:
    """Above TRADES in both."""
    rows = ["TRADES(beta=1)", "CAT_cw(beta1=0.3)"]
    return [c for m in ("natural", "pgd20") for c in ordered(look, "trades_tradeoff", rows, m)]


def cifar100_best(look: Look) -> list[Comparison]:
    """CAT above AT on CIFAR-100, by its best row."""
    return beats(look, "cifar100", CAT, ["AT"], ("natural", *WHITE))


def cifar100_each(look: Look) -> list[Comparison]:
    """The same, by each of its rows."""
    return each_beats(look, "cifar100", CAT, "AT", ("natural", *WHITE))


def beta_trades(look: Look) -> list[Comparison]:
    """Beta trades natural for robust accuracy."""
    made = []
    for loss in ("cent", "cw"):
        made += ordered(look, "beta", beta_rows(loss, (1, 2, 3, 4, 5)), "pgd20")
        made += ordered(look, "beta", beta_rows(loss, (5, 4, 3, 2, 1)), "natural")
    return made


def beta1_is_better(look: Look) -> list[Comparison]:
    """Beta1 trades better."""
    return [
        higher(
            both(look, "beta1", beta1_rows(loss, ("0.1", "0.2", "0.3"))),
            both(look, "beta", beta_rows(loss, (4, 3, 2, 1))),
        )
        for loss in ("cent", "cw")
    ]
