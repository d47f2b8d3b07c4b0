"""What a public attack demands of its arguments. Tracers pass: a compiled check cannot raise."""

import numbers

import jax
import jax.numpy as jnp
import numpy as np

from cat_jax.errors import UsageError, check_choice
from cat_jax.types import Array, LogitsFn

NORMS = ("linf", "l2")


def check_batch(images: Array, labels: Array) -> None:
    """Raises unless images are [B, H, W, C] floats in [0, 1] and labels are [B] integers."""
    if jnp.ndim(images) != 4 or not jnp.issubdtype(images.dtype, jnp.floating):
        raise UsageError(
            f"images are {images.dtype}{list(images.shape)}; expected floats [B, H, W, C]: "
            "divide uint8 pixels by 255."
        )
    if jnp.shape(labels) != images.shape[:1] or not jnp.issubdtype(labels.dtype, jnp.integer):
        raise UsageError(
            f"labels are {labels.dtype}{list(labels.shape)} for {len(images)} images; "
            "expected one integer each."
        )
    if is_concrete(images):
        low, high = _span(images)
        if not (low >= 0.0 and high <= 1.0):  # So put that NaN is refused.
            raise UsageError(
                f"images span [{low:.4g}, {high:.4g}]; expected [0, 1]: "
                "mean and std belong inside the network."
            )


def check_labels(logits_fn: LogitsFn, images: Array, labels: Array) -> None:
    """Raises unless every label is a class of `logits_fn`; others would count as fooled.

    Args:
      logits_fn: a pytree, so that it is traced only once for each shape.
      images: [B, H, W, C].
      labels: [B], integer.
    """
    if not is_concrete(labels):
        return
    num_classes = jax.eval_shape(_call, logits_fn, images).shape[-1]
    low, high = _span(labels)
    if not (low >= 0 and high < num_classes):
        raise UsageError(
            f"labels span [{low}, {high}]; logits have {num_classes} classes: "
            f"expected [0, {num_classes - 1}]."
        )


def check_leaves(logits_fn: LogitsFn) -> None:
    """Raises unless all that a pytree holds can be traced."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(logits_fn):
        if not (hasattr(leaf, "dtype") or isinstance(leaf, numbers.Number)):
            raise UsageError(
                f"logits_fn holds a {type(leaf).__name__} at {jax.tree_util.keystr(path)}; "
                "expected arrays alone, since they are traced: leave the rest outside, as "
                "eqx.partition(model, eqx.is_array) does, or give a plain function of images."
            )


def check_key(key: Array) -> None:
    """Raises unless it is a key, or several, of the kind that has a type of its own."""
    dtype = jnp.result_type(key)
    if not jnp.issubdtype(dtype, jax.dtypes.prng_key):
        raise UsageError(
            f"key is {dtype}{list(jnp.shape(key))}; expected one as jax.random.key(0) makes it, or "
            "one for each image."
        )


def check_norm(norm: str) -> None:
    """Raises unless there is a ball of that name."""
    check_choice("norm", norm, NORMS)


def check_radius(norm: str = "linf", /, **radii: Array | float) -> None:
    """Raises unless each is a radius: attacks think in fractions of the pixel range.

    In the maximum norm no two images are further apart than 1; in the Euclidean norm they may be.
    """
    largest = 1.0 if norm == "linf" else np.inf
    for name, value in radii.items():
        if not is_concrete(value):
            continue
        values = np.asarray(value)
        if not np.all((values >= 0) & (values <= largest) & np.isfinite(values)):
            span = "[0, 1]" if norm == "linf" else "a finite number from 0"
            raise UsageError(
                f"{name}={value}; expected {span}, on the scale of the images: "
                f"8 of 255 is {name}=8/255."
            )


def is_concrete(value: Array | float) -> bool:
    """Has `value` numbers to look at? A tracer has not."""
    return not isinstance(value, jax.core.Tracer)


def _span(values: Array) -> tuple[float, float]:
    """Least and largest, computed now even while `jit` traces the caller."""
    with jax.ensure_compile_time_eval():
        return jnp.min(values).item(), jnp.max(values).item()


def _call(logits_fn: LogitsFn, images: Array) -> Array:
    return logits_fn(images)
