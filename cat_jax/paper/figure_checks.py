"""What the paper's sentences on its figures imply, as comparisons of numbers."""

from cat_jax.paper.verdicts import Comparison, Key, Look, Value, combined, higher, ordered

EPSILONS = tuple(f"(epsilon={levels}/255)" for levels in (8, 9, 10, 11, 12))


def fall(look: Look, name: str, metrics: tuple[str, ...]) -> Value | None:
    """What is lost from epsilon 8/255 to 12/255."""
    ends = [name + EPSILONS[0], name + EPSILONS[-1]]
    parts = [look(Key("larger_epsilon", row, m)) for row in ends for m in metrics]
    signs = [1.0] * len(metrics) + [-1.0] * len(metrics)
    return combined(f"fall of {name}", parts, signs)


def _zero(name: str) -> Value:
    return Value(0.0, 0.0, name)


def masks(look: Look) -> list[Comparison]:
    """M higher on the background than on the digit."""
    parts = ("mask_background", "mask_digit")
    rows = ("CAT_cent(0.4)", "CAT_cw(0.4)")
    return [
        higher(*(look(Key("mask_visualisation", row, part)) for part in parts), what="mean M")
        for row in rows
    ]


def robust_rises(look: Look) -> list[Comparison]:
    """Robust accuracy rises with the epsilon of training."""
    names = ("CAT_cent", "CAT_cw")
    rows = [[name + epsilon for epsilon in EPSILONS] for name in names]
    return [c for each in rows for c in ordered(look, "larger_epsilon", each, "pgd100")]


def sum_falls(look: Look) -> list[Comparison]:
    """Natural plus robust accuracy falls with it."""
    names = ("CAT_cent", "CAT_cw")
    falls = [fall(look, name, ("natural", "pgd100")) for name in names]
    return [higher(value, _zero("none"), what="natural + PGD-100") for value in falls]


def falls_less(look: Look) -> list[Comparison]:
    """It falls less than that of the baselines."""
    metrics = ("natural", "pgd100")
    return [
        higher(fall(look, other, metrics), fall(look, name, metrics), what="natural + PGD-100")
        for name in ("CAT_cent", "CAT_cw")
        for other in ("TRADES", "AT")
    ]


def at_loses_natural(look: Look) -> list[Comparison]:
    """AT's natural accuracy falls with it."""
    rows = ["AT" + epsilon for epsilon in reversed(EPSILONS)]
    return ordered(look, "larger_epsilon", rows, "natural")


def without_mask(look: Look) -> list[Comparison]:
    """Without the mask natural accuracy and the sum are lower."""
    table, rows = "ablation_components", ["A2", "CAT(beta1=0.05)"]
    return [c for m in ("natural", "natural+pgd10") for c in ordered(look, table, rows, m)]


def without_weight(look: Look) -> list[Comparison]:
    """Without the weight natural accuracy is lower."""
    return ordered(look, "ablation_components", ["A1", "A2"], "natural")


def kl_is_weaker(look: Look) -> list[Comparison]:
    """The KL attack gives less robust accuracy."""
    return [
        comparison
        for beta1 in ("0.05", "0.1")
        for name in ("CE", "CW")
        for comparison in ordered(
            look, "ablation_losses", [f"KL(beta1={beta1})", f"{name}(beta1={beta1})"], "pgd10"
        )
    ]
