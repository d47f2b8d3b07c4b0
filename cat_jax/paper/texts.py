"""The paper's table without numbers: the losses of Table 9 beside their functions."""

from cat_jax.report.grids import Grid

_NATURAL, _ROBUST = r"L(f_\theta(X), Y)", r"L(f_\theta(X'), Y)"
_KL = r"\mathbf{KL}(P(Y\mid X') \Vert P(Y\mid X))"
LOSSES = (
    ("AT", f"${_ROBUST}$", "at"),
    ("ALP", rf"${_ROBUST} + \lambda \Vert f_\theta(X') - f_\theta(X)\Vert$", "alp"),
    (
        "MMA",
        rf"${_ROBUST} \cdot 1(f_\theta(X) = Y) + {_NATURAL} \cdot 1(f_\theta(X) \neq Y)$",
        "mma",
    ),
    ("TRADES", rf"${_NATURAL} + \lambda \cdot {_KL}$", "trades"),
    (
        "MART",
        rf"$BCE(f_\theta(X'), Y) + \lambda \cdot {_KL} \cdot (1 - P(Y=y\mid X))$",
        "mart",
    ),
    (
        "CAT (Eq. 13)",
        rf"${_NATURAL} \cdot (1 - P(Y=y\mid X)) + \beta \cdot "
        r"\mathbf{KL}(P(Y\mid X'_{cali}) \Vert P(Y\mid X))$",
        "cat",
    ),
    (
        "CAT, g (Eq. 14)",
        r"$\mathbf{KL}(P(Y\mid X'_{cali}) \Vert P(Y\mid X')) + "
        r"\beta_1 \cdot L(f_\theta(X'_{cali}), Y)$",
        "cat",
    ),
)


def losses() -> Grid:
    """Returns Table 9, followed by the paper's own two objectives."""
    body = [[name, formula, f"methods.{function}"] for name, formula, function in LOSSES]
    notes = [
        "The table follows the paper. The released code swaps the arguments of both divergences of "
        "CAT (config.method.kl_p). TRADES' and MART's own code has KL(P(Y|X) || P(Y|X'))."
    ]
    caption = "Table 9: loss functions of the variants of adversarial training"
    return Grid("losses", caption, ["method", "loss", "here"], body, notes)
