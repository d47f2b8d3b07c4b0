"""The words of `config.evaluation`: names, and attacks with arguments."""

import ast
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from cat_jax.errors import UsageError, check_choice
from cat_jax.experiment.limits import MAX_RADIUS, radius_text, read_radius
from cat_jax.experiment.listed_attack import STANDARD_QUERIES, Listed, forward_passes

EXAMPLE_RADII = {"linf": "8/255", "l2": "0.5", "l1": "12"}  # Common ones on CIFAR-10.

# Attacks that take arguments by name, and those that differ from the defaults of the functions.
# "pgd:num_steps=50,restarts=10" is a word of `config.evaluation`.
FUNCTIONS: dict[str, dict[str, Any]] = {
    "fgsm": {},
    "pgd": {"num_steps": 20},
    "cw_linf": {"num_steps": 30},
    "mi_fgsm": {"num_steps": 10},
    "apgd": {"num_steps": 100},
    "apgd_dlr": {"num_steps": 100},
    "apgd_t": {"num_steps": 100, "num_targets": 9},
    "fab": {"num_steps": 100},
    "fab_t": {"num_steps": 100, "num_targets": 9},
    "square": {"num_queries": STANDARD_QUERIES},
}


def words(evaluation: str) -> list[str]:
    """The words of `config.evaluation`. A comma between the arguments of an attack ends no word."""
    texts: list[str] = []
    for part in evaluation.split(","):
        if "=" in part and ":" not in part and texts and ":" in texts[-1]:
            texts[-1] += f",{part}"
        else:
            texts.append(part)
    return texts


def with_arguments(word: str, settings: ConfigDict) -> Listed:
    """The attack "NAME" or "NAME:ARGUMENT=VALUE,..." in the ball of the tests or in another.

    It attacks the images that are classified correctly.

    Raises:
      UsageError: for a function that takes none, an argument without a value or given twice, and
        another norm without its radius.
    """
    name, _, text = word.partition(":")
    check_choice(f"the attack of config.evaluation={word!r}", name, FUNCTIONS)
    parts = [part.partition("=") for part in text.split(",") if text]
    texts: dict[str, str] = {}
    for argument, _, value in parts:
        if argument in texts:
            raise UsageError(f"config.evaluation has {argument} twice in {word!r}; give it once.")
        texts[argument] = value
    norm, epsilon = _ball(word, texts, settings)
    named = {k: _value(word, k, v, norm, epsilon) for k, v in texts.items() if k != "norm"}
    num_restarts = named.pop("restarts", 0)
    arguments = {"epsilon": epsilon} | FUNCTIONS[name] | named
    if name != "cw_linf":
        arguments = {"norm": norm} | arguments
    elif norm != "linf":
        raise UsageError(
            f"{word} attacks in L-infinity balls only; the norm is {norm}. Set both: "
            "cw_linf:norm=linf,epsilon=8/255."
        )
    if name in ("pgd", "cw_linf"):  # The step size keeps its ratio to the radius.
        share = settings.step_size / settings.epsilon
        arguments = {"step_size": share * arguments["epsilon"]} | arguments
    queries = forward_passes(name, arguments)
    queries = num_restarts * (queries + 1) if num_restarts else queries
    function = "square_counted" if name == "square" else name
    return Listed(word, function, arguments, num_restarts, "natural", queries)


def _ball(word: str, texts: Mapping[str, str], settings: ConfigDict) -> tuple[str, float]:
    """The norm and the radius of an attack: its arguments, or those of the tests.

    Raises:
      UsageError: for an unknown norm, and for another norm than that of the tests without a radius.
    """
    norm = texts.get("norm", settings.norm)
    check_choice(f"the norm of config.evaluation={word!r}", norm, MAX_RADIUS)
    if norm == settings.norm:
        text = texts.get("epsilon", settings.epsilon)
        return norm, read_radius("config.evaluation", text, norm, settings.epsilon)
    if "epsilon" not in texts:
        raise UsageError(
            f"config.evaluation has {word!r} without a radius; config.test.epsilon="
            f"{radius_text(settings.epsilon)} is one in {settings.norm}. Add a radius in {norm}, "
            f"such as {word},epsilon={EXAMPLE_RADII[norm]}."
        )
    return norm, read_radius("config.evaluation", texts["epsilon"], norm)


def _value(word: str, name: str, text: str, norm: str, epsilon: float) -> Any:
    """The value of an argument: a number, True or False, a radius such as 8/255, or a name."""
    if name == "targets":
        return text
    if name == "epsilon":
        return epsilon
    if name == "step_size":
        return read_radius("config.evaluation", text, norm, epsilon)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        part = f"{name}={text}" if text else name
        raise UsageError(
            f"config.evaluation has {part!r} in {word!r}; expected ARGUMENT=VALUE, such as "
            "pgd:num_steps=50,restarts=10."
        ) from None
