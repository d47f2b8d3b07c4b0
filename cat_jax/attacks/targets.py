"""Target classes of targeted attacks, and the loss that leads towards them."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.tree_util import Partial

from cat_jax import losses, objectives
from cat_jax.attacks.arguments import as_key, is_concrete
from cat_jax.attacks.callables import as_loss
from cat_jax.attacks.entry import Entry
from cat_jax.attacks.starts import per_example_keys
from cat_jax.errors import UsageError, check_choice
from cat_jax.types import Array, LogitsFn, Loss, Views

Targets = Array | np.ndarray | str | None  # Classes [B], one of `NAMES`, or None: untargeted.
NAMES = ("least_likely", "random")
DRAW = 1_000_003  # Folded into a key, so that targets and starts are drawn from different keys.


def choose_targets(
    name: str, logits_fn: LogitsFn, images: Array, labels: Array, key: Array | None = None
) -> Array:
    """The target classes that attacks use for `targets=name`.

    Args:
      name: "least_likely": the wrong class with the smallest logit at the natural image;
        "random": a wrong class that is drawn uniformly for each image.
      logits_fn, images, labels: as for `attacks.pgd`.
      key: key of the attack, or one for each image, [B]; only for "random".

    Returns:
      Classes, int32 [B], none of them the label of its image.

    Raises:
      UsageError: as `attacks.pgd`, for an unknown name, and for "random" without a key.
    """
    check_choice("targets", name, NAMES)
    entry = Entry.of(logits_fn, images, labels)
    if entry.is_empty:
        return jnp.zeros(0, jnp.int32)
    keys = per_example_keys(as_key(key), len(images)) if name == "random" else None
    return _named_targets(entry.logits_fn, entry.images, entry.labels, keys)


@jax.jit
def _named_targets(logits_fn: LogitsFn, images: Array, labels: Array, keys: Array | None) -> Array:
    """Random wrong classes if there are keys, otherwise the least likely ones."""
    logits = logits_fn(images)
    num_classes = logits.shape[-1]
    if keys is None:
        true = jax.nn.one_hot(labels, num_classes, dtype=bool)
        return jnp.argmin(jnp.where(true, jnp.inf, logits), axis=-1).astype(jnp.int32)

    def draw(key: Array) -> Array:
        return jax.random.randint(jax.random.fold_in(key, DRAW), (), 1, num_classes)

    return ((labels + jax.vmap(draw)(keys)) % num_classes).astype(jnp.int32)


def as_targets(targets: Targets, entry: Entry, key: Array | None) -> Array | None:
    """The target classes [B], or None for an untargeted attack.

    Raises:
      UsageError: for an unknown name, an array that is not integers [B], a value that is not a
        class, and a target that is the label of its image.
    """
    if targets is None:
        return None
    if isinstance(targets, str):
        return choose_targets(targets, entry.logits_fn, entry.images, entry.labels, key)
    if not isinstance(targets, jax.Array | np.ndarray):
        raise UsageError(
            f"targets are a {type(targets).__name__}; expected an array of classes [B], "
            f"{' or '.join(NAMES)}."
        )
    if targets.shape != entry.labels.shape or not jnp.issubdtype(targets.dtype, jnp.integer):
        raise UsageError(
            f"targets are {targets.dtype}{list(targets.shape)} for {len(entry.labels)} images; "
            "expected one integer for each image."
        )
    if is_concrete(targets) and is_concrete(entry.labels):
        _check_classes(np.asarray(targets), np.asarray(entry.labels), entry.num_classes)
    return jnp.asarray(targets)


def _check_classes(targets: np.ndarray, labels: np.ndarray, num_classes: int) -> None:
    if targets.min() < 0 or targets.max() >= num_classes:
        raise UsageError(
            f"targets span [{targets.min()}, {targets.max()}]; logits have {num_classes} classes: "
            f"expected [0, {num_classes - 1}]."
        )
    if (same := np.flatnonzero(targets == labels)).size:
        raise UsageError(
            f"The target of image {same[0]} is {targets[same[0]]}, which is its label; expected "
            "another class: labels are the true classes of the images."
        )


def towards(loss: Loss, entry: Entry, targets: Array) -> Partial:
    """The loss that a targeted attack maximises: views of logits, targets -> [B].

    It is the negative of `loss`. The margin of C&W becomes min(z_t - max_{i != t} z_i, kappa).

    Raises:
      UsageError: as `as_loss`, and for the KL divergence, which reads no classes.
    """
    if loss is objectives.adversarial_kl:
        raise UsageError(
            "targets and the loss adversarial_kl are given; expected a loss that reads the target, "
            "such as objectives.adversarial_cross_entropy."
        )
    if isinstance(loss, objectives.AdversarialMargin):
        return Partial(_target_margin, kappa=loss.kappa)
    return Partial(_negative, as_loss(loss, entry.num_classes, entry.images, targets))


def _negative(loss: Loss, logits: Views, targets: Array) -> Array:
    return -loss(logits, targets)


def _target_margin(logits: Views, targets: Array, *, kappa: Array | float) -> Array:
    return jnp.minimum(-losses.margin(logits.adversarial, targets), kappa)


def succeeds(logits: Array, classes: Array, is_targeted: bool) -> Array:
    """Whether an attack has succeeded, bool [B].

    Args:
      logits: [B, K].
      classes: the targets, or the labels of an untargeted attack, [B].
      is_targeted: success is "classified as the target", otherwise "misclassified".
    """
    is_right = losses.is_right(logits, classes)
    return is_right if is_targeted else ~is_right


def likeliest_wrong(logits: Array, labels: Array, num_targets: int) -> Array:
    """The wrong classes with the largest logits, the largest first, [T, B].

    T is `num_targets`, at most K - 1.
    """
    num_classes = logits.shape[-1]
    true = jax.nn.one_hot(labels, num_classes, dtype=bool)
    wrong = jnp.where(true, -jnp.inf, logits)
    return lax.top_k(wrong, min(num_targets, num_classes - 1))[1].T
