"""Turns the numbers of each check into a verdict and a sentence."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MAX_ROUNDING = 1e-4  # Relative to the largest logit: another order of a sum changes this much.
MAX_PROBABILITY_ERROR = 1e-3  # Rounded probabilities sum to 1 within this.
MAX_ZERO_SHARE = 0.01
MAX_ROUNDING_STEP = 1e-3  # Relative to the spread of an image's logits.
MIN_IMAGES_FOR_MARGIN = 30  # Below this, a standard deviation of chance means little.
MAX_RISE = 0.02  # Share of the images by which luck may raise accuracy in a larger ball.


class Finding(NamedTuple):
    """The outcome of one check.

    Attributes:
      name: name of the check; it says what the check verifies.
      passed: whether the check passed.
      text: one line: the number and, if the check failed, what it means and what to do.
      attacks: names of the attacks that the check compares.
    """

    name: str
    passed: bool
    text: str
    attacks: tuple[str, ...] = ()


def finding(name: str, passed: bool | np.bool, number: str, meaning: str) -> Finding:
    """Returns a `Finding`; its text includes `meaning` only if the check failed."""
    return Finding(name, bool(passed), number if passed else f"{number} {meaning}")


def inference_mode(problem: str) -> Finding:
    """The finding for a classifier in training mode, which no other check can examine."""
    meaning = "Robustness is a property of a model in inference mode."
    return finding("inference_mode", False, problem, meaning)


def finite_logits(logits: np.ndarray) -> Finding:
    """Checks that every logit is finite; `logits` may have any shape."""
    count = int(np.sum(~np.isfinite(logits)))
    number = (
        f"{count} of {logits.size} logits are not finite, at the images and at two corners of the "
        "ball around each."
    )
    meaning = (
        "Such an image counts as wrong, and no attack can climb there. Look for NaN among the "
        "weights, an overflow, or the logarithm of 0."
    )
    return finding("finite_logits", count == 0, number, meaning)


def finite_gradients(gradients: np.ndarray) -> Finding:
    """Checks the input gradients of the cross-entropy, [B, H, W, C]."""
    broken = ~np.isfinite(gradients)
    number = (
        f"The input gradient of the cross-entropy is not finite at "
        f"{broken.any(axis=(1, 2, 3)).sum()} of {len(gradients)} images, in {broken.sum()} of "
        f"{gradients.size} entries."
    )
    meaning = (
        "Gradient attacks do not move these pixels, so accuracy under attack is too high. Look for "
        "a root, a logarithm or a division at 0: sqrt(x + 1e-12) has a gradient at 0. Also attack "
        "without gradients (Square)."
    )
    return finding("finite_gradients", not broken.any(), number, meaning)


def outputs_are_logits(outputs: np.ndarray) -> Finding:
    """Checks that outputs, [B, K], are not probabilities; log-probabilities pass."""
    low, high = float(outputs.min()), float(outputs.max())
    inside = low >= -MAX_PROBABILITY_ERROR and high <= 1 + MAX_PROBABILITY_ERROR
    errors = np.abs(outputs.sum(axis=-1, dtype=np.float64) - 1)
    kind, cause = (
        ("probabilities", "a second softmax flattens the cross-entropy")
        if np.all(errors <= MAX_PROBABILITY_ERROR)
        else ("all in [0, 1], like the outputs of a sigmoid", "a softmax over them is nearly flat")
    )
    number = f"Outputs range from {low:.4g} to {high:.4g}."
    meaning = (
        f"They are {kind}: {cause}, and the margin and DLR losses saturate. Return the inputs of "
        "the softmax or sigmoid; for an average of softmaxes return its logarithm, "
        "jnp.log(mean(softmax))."
    )
    return finding("outputs_are_logits", not inside, number, meaning)


def precision_suffices(logits: np.ndarray) -> Finding:
    """Checks that the dtype of the logits, [B, K], resolves the differences between classes."""
    largest = np.max(np.abs(logits), axis=-1, initial=0.0, where=np.isfinite(logits))
    spread = np.ptp(np.where(np.isfinite(logits), logits, logits[:, :1]), axis=-1)
    steps = np.spacing(largest.astype(logits.dtype))
    coarse = (steps > MAX_ROUNDING_STEP * spread) & (largest >= 100)
    number = (
        f"At {coarse.sum()} of {len(logits)} images, {logits.dtype} leaves fewer than "
        f"{1 / MAX_ROUNDING_STEP:.0f} steps between the logits of the classes (largest logit: "
        f"{largest.max():.4g})."
    )
    meaning = (
        "The model adds a large number to the logits of all classes, and rounding loses their "
        "differences: losses become step functions and classes tie. Subtract that number inside "
        "the network before it is added."
    )
    return finding("precision_suffices", coarse.mean() <= MAX_ZERO_SHARE, number, meaning)


def better_than_chance(logits: np.ndarray, labels: np.ndarray) -> Finding:
    """Checks that answers depend on the images.

    If predicted classes and labels were independent, the product of their distributions would give
    the expected accuracy. With enough images, the check requires two standard deviations more.

    Args:
      logits: [B, K].
      labels: [B].
    """
    total, num_classes = logits.shape
    predicted = logits.argmax(axis=-1)
    correct = int(np.sum(predicted == labels))
    counts = (np.bincount(classes, minlength=num_classes) for classes in (predicted, labels))
    share = float(np.dot(*(count / total for count in counts)))
    margin = 2 * math.sqrt(total * share * (1 - share)) if total >= MIN_IMAGES_FOR_MARGIN else 0.0
    num_predicted, num_labels = len(np.unique(predicted)), len(np.unique(labels))
    number = (
        f"{correct} of {total} images are correct ({total * share:.3g} expected by chance); the "
        f"classifier predicts {num_predicted} of {num_classes} classes, the labels have "
        f"{num_labels}."
    )
    meaning = (
        "The classifier's answers do not depend on the images, so attacks change nothing and "
        "accuracy under attack means nothing. Check that it is trained, and that weights, labels "
        "and the normalisation of images match its training."
    )
    passed = num_labels == 1 or correct > total * share + margin
    return finding("better_than_chance", passed, number, meaning)


def repeatable_logits(logits: np.ndarray, repeated: np.ndarray) -> Finding:
    """Checks that the same batch gives the same logits, [B, K], twice."""
    same, gap = _compare(logits, repeated)
    meaning = (
        "The classifier is random or keeps a state: an accuracy is one sample, and attacks follow "
        "noise. Attack the mean over many draws (EOT): attacks.expectation(logits_fn_with_key, 20)."
    )
    return finding("repeatable_logits", same, f"On the same batch twice, {gap}.", meaning)


def independent_of_batch(logits: np.ndarray, elsewhere: np.ndarray) -> Finding:
    """Checks that the same images have the same logits, [n, K], in two different batches."""
    same, gap = _compare(logits, elsewhere)
    meaning = (
        "The answer for an image depends on its position or on the other images in the batch: "
        "batch norm in training mode, or noise (from a fixed key, if repeatable_logits passes). "
        "Evaluate in inference mode; for fresh noise, attack attacks.expectation (EOT)."
    )
    number = f"At another position among other images, {gap}."
    return finding("independent_of_batch", same, number, meaning)


def _compare(logits: np.ndarray, others: np.ndarray) -> tuple[bool, str]:
    """Whether logits are equal up to rounding (NaN equals NaN), and their difference in words."""
    equal = (logits == others) | (np.isnan(logits) & np.isnan(others))
    gap = np.max(np.abs(np.where(equal, 0.0, logits) - np.where(equal, 0.0, others)))
    largest = np.max(np.abs(logits), initial=0.0, where=np.isfinite(logits))
    return bool(gap <= MAX_ROUNDING * largest), f"logits of up to {largest:.4g} differ by {gap:.2g}"


def nonzero_gradients(flat: np.ndarray, stepped: np.ndarray) -> Finding:
    """Checks that input gradients are not exactly zero.

    Args:
      flat: bool [B], whether the gradient is exactly zero.
      stepped: bool [B], whether also only large changes of the image change its logits.
    """
    number = (
        f"The input gradient of the cross-entropy is exactly zero at {flat.sum()} of {len(flat)} "
        "images."
    )
    meaning = (
        "Gradient attacks get no signal there. Check for logits too far apart for float32 (divide "
        "them by a constant) and for dead units. Also attack without gradients (Square)."
    )
    if 2 * stepped.sum() > flat.sum():
        meaning = (
            "Gradient attacks get no signal there. Only large changes of an image change its "
            "logits: the input is quantised. Give the rounding f the gradient of the identity, "
            "attacks.straight_through(f) (BPDA), and also attack without gradients (Square)."
        )
    return finding("nonzero_gradients", flat.mean() <= MAX_ZERO_SHARE, number, meaning)


def more_starts_are_stronger(
    attack: str, after_first: np.ndarray, after_all: np.ndarray, num_starts: int
) -> Finding:
    """Checks that images fooled by the first random start stay fooled.

    Args:
      attack: name of the attack.
      after_first: bool [B], whether an image is still correct after the first start.
      after_all: bool [B], whether it is still correct after all starts, the first among them.
      num_starts: number of random starts.
    """
    recovered = int(np.sum(after_all & ~after_first))
    number = (
        f"{attack} leaves {after_first.sum()} of {len(after_first)} images correct after 1 random "
        f"start and {after_all.sum()} after {num_starts}; {recovered} images fooled by the first "
        f"start are correct after all {num_starts}."
    )
    meaning = (
        "All starts include the first, so the answer for one and the same image changes, and no "
        "count of an attack is reliable. See repeatable_logits and independent_of_batch."
    )
    return finding("more_starts_are_stronger", recovered == 0, number, meaning)


def larger_epsilon_is_stronger(
    correct: Sequence[int], radii: Sequence[float], total: int
) -> Finding:
    """Checks that accuracy does not rise with the radius.

    Args:
      correct: how many of `total` images are correct at each radius.
      radii: radii, from small to large.
      total: number of images.
    """
    pairs = zip(correct, radii, strict=True)
    curve = ", ".join(f"{count} at {radius:.3g}" for count, radius in pairs)
    rise = max((after - before for before, after in itertools.pairwise(correct)), default=0)
    number = f"Of {total} images, correct under APGD by epsilon: {curve}."
    meaning = (
        "A larger ball contains the smaller ones: where accuracy rises, the attack fails, as it "
        "does on masked gradients. Also attack without gradients (Square)."
    )
    passed = rise <= max(1, MAX_RISE * total)
    return finding("larger_epsilon_is_stronger", passed, number, meaning)


def epsilon_one_fools_all(correct: int, total: int) -> Finding:
    """Checks that no image is correct at radius 1, where the ball contains every image."""
    number = f"{correct} of {total} images are correct under APGD at epsilon 1."
    meaning = (
        "At epsilon 1 the attack can reach every image, so it fails on these; it may fail at "
        "smaller radii too. Or the classifier answers one class for every image. Look at its "
        "answers, raise the number of steps, and also attack without gradients (Square)."
    )
    return finding("epsilon_one_fools_all", correct == 0, number, meaning)
