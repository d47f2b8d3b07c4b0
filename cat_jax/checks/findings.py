"""From numbers to words: what a check says."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

ROUNDING = 1e-4  # Of the largest logit: what the order of a sum may change.
PROBABILITY = 1e-3  # How far from 1 the sum of rounded probabilities may be.
ZERO_SHARE = 0.01
COARSE = 1e-3  # A step of rounding, in spreads of the logits.
ENOUGH = 30  # From so many images on, chance has a standard deviation worth the name.
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


def finding(name: str, passed: bool | np.bool, number: str, meaning: str) -> Finding:
    """A `Finding`, whose text gives the `meaning` of its `number` only if the check failed."""
    return Finding(name, bool(passed), number if passed else f"{number} {meaning}")


def inference(problem: str) -> Finding:
    """For a classifier that cannot be checked further: it is in training mode."""
    return finding("inference", False, problem, "Robustness is that of a model in inference mode.")


def finite(logits: np.ndarray) -> Finding:
    """For all logits, whatever their shape."""
    count = int(np.sum(~np.isfinite(logits)))
    where = "at the images and at two corners of each one's ball"
    number = f"{count} of {logits.size} logits are not finite, {where}."
    meaning = (
        "Such an image counts as wrong, and no attack can climb there. Look for NaN among the "
        "weights, an overflow, or the logarithm of 0."
    )
    return finding("finite", count == 0, number, meaning)


def finite_gradients(gradients: np.ndarray) -> Finding:
    """For the cross-entropy's input gradients, [B, H, W, C]."""
    broken = ~np.isfinite(gradients)
    number = (
        f"The cross-entropy's input gradient is not finite at {broken.any(axis=(1, 2, 3)).sum()} "
        f"of {len(gradients)} images, in {broken.sum()} of {gradients.size} entries."
    )
    meaning = (
        "Attacks by gradient do not move these entries, and leave too much right. Look for a root, "
        "a logarithm or a division at 0: sqrt(x + 1e-12) has a gradient at 0. Attack without "
        "gradients too (Square)."
    )
    return finding("finite_gradients", not broken.any(), number, meaning)


def are_logits(outputs: np.ndarray) -> Finding:
    """[B, K]: they are not probabilities, of all classes or of each; logarithms will do."""
    low, high = float(outputs.min()), float(outputs.max())
    inside = low >= -PROBABILITY and high <= 1 + PROBABILITY
    sums_to_one = np.all(np.abs(outputs.sum(axis=-1, dtype=np.float64) - 1) <= PROBABILITY)
    kind, cause = (
        ("probabilities", "a second softmax flattens the cross-entropy")
        if sums_to_one
        else ("all in [0, 1], as a sigmoid's are", "a softmax over them is nearly flat")
    )
    meaning = (
        f"They are {kind}: {cause}, and margin and DLR saturate. Return what goes into the softmax "
        "or the sigmoid; for an average of softmaxes, its logarithm, jnp.log(mean(softmax))."
    )
    number = f"Outputs span [{low:.4g}, {high:.4g}]."
    return finding("logits", not inside, number, meaning)


def resolution(logits: np.ndarray) -> Finding:
    """[B, K]: their dtype resolves the differences between classes."""
    largest = np.max(np.abs(logits), axis=-1, initial=0.0, where=np.isfinite(logits))
    spread = np.ptp(np.where(np.isfinite(logits), logits, logits[:, :1]), axis=-1)
    steps = np.spacing(largest.astype(logits.dtype))
    coarse = (steps > COARSE * spread) & (largest >= 100)
    number = (
        f"At {coarse.sum()} of {len(logits)} images {logits.dtype} resolves the logits, of up to "
        f"{largest.max():.4g}, to less than {1 / COARSE:.0f} steps between the classes."
    )
    meaning = (
        "A large number is added to all classes, and differences are lost in rounding: losses have "
        "steps, and answers are ties. Subtract it inside the network, before it is added."
    )
    return finding("resolution", coarse.mean() <= ZERO_SHARE, number, meaning)


def answers(logits: np.ndarray, labels: np.ndarray) -> Finding:
    """[B, K] and [B]: the classifier knows something about its images.

    If answers had nothing to do with labels, images would be right by the product of the two
    distributions. Two standard deviations more are asked for, if there are enough images.
    """
    total, num_classes = logits.shape
    given = logits.argmax(axis=-1)
    right = int(np.sum(given == labels))
    counts = (np.bincount(classes, minlength=num_classes) for classes in (given, labels))
    share = float(np.dot(*(count / total for count in counts)))
    margin = 2 * math.sqrt(total * share * (1 - share)) if total >= ENOUGH else 0.0
    distinct, num_labels = len(np.unique(given)), len(np.unique(labels))
    number = (
        f"{right} of {total} images are right, {total * share:.3g} would be by chance; answers are "
        f"{distinct} of {num_classes} classes, labels {num_labels}."
    )
    meaning = (
        "The classifier says one class, or any, of every image: no attack changes that, so that "
        "accuracies under attack mean nothing. Is it trained, and are weights, labels and the "
        "normalisation of images those it was trained with?"
    )
    return finding("answers", num_labels == 1 or right > total * share + margin, number, meaning)


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


def gradients(flat: np.ndarray, stepped: np.ndarray) -> Finding:
    """From the images without a gradient, and those of them at which only large moves count.

    Args:
      flat: bool [B], is the gradient exactly zero?
      stepped: bool [B], is it, and do logits change far from the image and not near it?
    """
    number = (
        f"The cross-entropy's input gradient is exactly zero at {flat.sum()} of {len(flat)} images."
    )
    meaning = (
        "Attacks by gradient see nothing there. Are logits too far apart for float32 (divide them "
        "by a constant), or units dead? Attack without gradients too (Square)."
    )
    if 2 * stepped.sum() > flat.sum():
        meaning = (
            "Attacks by gradient see nothing there. Small moves change no logit, large ones do: "
            "the input is quantised. Give the step a slope, x + stop_gradient(round(x) - x) for "
            "round(x) (BPDA), and attack without gradients too (Square)."
        )
    return finding("zero_gradients", flat.mean() <= ZERO_SHARE, number, meaning)


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
