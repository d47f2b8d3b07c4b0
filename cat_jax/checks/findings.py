"""From numbers to words: what a check says."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

ROUNDING = 1e-4  # Of the largest logit: what the order of a sum may change.
PROBABILITY = 1e-3  # How far from 1 the sum of rounded probabilities may be.
ZERO_SHARE = 0.01
RISE = 0.02  # Of the images: what an attack's luck may add to the accuracy in a larger ball.


class Finding(NamedTuple):
    """The outcome of one check, for one line of a report.

    Attributes:
      name: of the check.
      passed: is there nothing to say against the robustness?
      text: one line: the number, and if the check failed what it means and what to do.
      attacks: names of those that were compared.
    """

    name: str
    passed: bool
    text: str
    attacks: tuple[str, ...] = ()


def finding(name: str, passed: bool, number: str, meaning: str) -> Finding:
    """A `Finding`, whose text gives the `meaning` of its `number` only if the check failed."""
    return Finding(name, bool(passed), number if passed else f"{number} {meaning}")


def finite(logits: np.ndarray) -> Finding:
    """Of all logits that were seen."""
    count = int(np.sum(~np.isfinite(logits)))
    where = "at the images and at two corners of each one's ball"
    number = f"{count} of {logits.size} logits are not finite, {where}."
    meaning = "No attack can climb a loss that is no number: mend the overflow, or the log of 0."
    return finding("finite", count == 0, number, meaning)


def are_logits(outputs: np.ndarray) -> Finding:
    """[B, K]: they are not probabilities. Logarithms of these will do."""
    low, high, sums = outputs.min(), outputs.max(), outputs.sum(axis=-1)
    inside = low >= -PROBABILITY and high <= 1 + PROBABILITY
    probabilities = inside and np.all(np.abs(sums - 1) <= PROBABILITY)
    meaning = (
        "They are probabilities: a second softmax flattens the cross-entropy, and margin and DLR "
        "saturate. Return what goes into the softmax, or its log_softmax."
    )
    number = f"Outputs span [{low:.4g}, {high:.4g}]."
    return finding("logits", not probabilities, number, meaning)


def repeatable(logits: np.ndarray, again: np.ndarray) -> Finding:
    """Of one batch, [B, K], twice."""
    same, gap = _compare(logits, again)
    meaning = (
        "The classifier is random, or has a state: an accuracy is one draw, and an attack follows "
        "noise. Average logits and gradients over many draws (EOT)."
    )
    return finding("repeatable", same, f"Given the same batch twice, {gap}.", meaning)


def independent(logits: np.ndarray, elsewhere: np.ndarray) -> Finding:
    """Of the same images, [n, K], in two batches."""
    same, gap = _compare(logits, elsewhere)
    meaning = (
        "The answer depends on an image's place, or on the others in its batch: batch norm in "
        "training mode, or noise (if repeatable, from a fixed key). Evaluate in inference mode; "
        "average over fresh noise (EOT)."
    )
    number = f"In another place, beside other images, {gap}."
    return finding("independent", same, number, meaning)


def _compare(logits: np.ndarray, again: np.ndarray) -> tuple[bool, str]:
    """Are they the same but for rounding? NaN is like NaN. And their gap in words."""
    alike = (logits == again) | (np.isnan(logits) & np.isnan(again))
    gap = np.max(np.abs(np.where(alike, 0.0, logits) - np.where(alike, 0.0, again)))
    largest = np.max(np.abs(logits), initial=0.0, where=np.isfinite(logits))
    return bool(gap <= ROUNDING * largest), f"logits of up to {largest:.4g} differ by {gap:.2g}"


def gradients(num_zero: int, total: int) -> Finding:
    """Of `total` images, at so many there is none."""
    number = f"The cross-entropy's input gradient is exactly zero at {num_zero} of {total} images."
    meaning = (
        "Attacks by gradient see nothing there. Are logits too far apart for float32 (divide them "
        "by a constant), units dead, or is there a step without slope, such as rounding (attack "
        "through a smooth stand-in, BPDA)? Attack without gradients too (Square)."
    )
    return finding("zero_gradients", num_zero <= ZERO_SHARE * total, number, meaning)


def restarts(attack: str, one: np.ndarray, more: np.ndarray, num_starts: int) -> Finding:
    """From the flags, bool [B], of those right under the first start, and under all of them."""
    back = int(np.sum(more & ~one))
    counts = f"{one.sum()} of {len(one)} images right from 1 start, {more.sum()} from {num_starts}"
    number = f"{attack} leaves {counts}; {back} that the first start breaks stand in the end."
    meaning = (
        "The first start is among the others: so the answer to one and the same image changes, "
        "and no attack's count holds. See repeatable and independent."
    )
    return finding("restarts", back == 0, number, meaning)


def growing_epsilon(right: Sequence[int], radii: Sequence[float], total: int) -> Finding:
    """From how many of `total` images are right at each of the growing radii."""
    curve = ", ".join(f"{n} at {radius:.3g}" for n, radius in zip(right, radii, strict=True))
    rise = max((later - earlier for earlier, later in itertools.pairwise(right)), default=0)
    meaning = (
        "A larger ball holds all that a smaller one does: where accuracy rises, the attack fails, "
        "as it does on masked gradients. Attack without gradients too (Square)."
    )
    number = f"Of {total} images right under APGD, by epsilon: {curve}."
    return finding("growing_epsilon", rise <= max(1, RISE * total), number, meaning)


def epsilon_one(right: int, total: int) -> Finding:
    """From how many images are right where every image is in the ball."""
    meaning = (
        "Any image may become any other there, so that these stand because the attack fails, as "
        "may those at a smaller epsilon; or because the classifier answers one class to all. Look "
        "at its answers, raise the attack's steps, and attack without gradients too (Square)."
    )
    number = f"{right} of {total} images are right under APGD at epsilon 1."
    return finding("epsilon_one", right == 0, number, meaning)
