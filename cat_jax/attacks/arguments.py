"""Checks of the arguments of public attacks. Tracers pass, because compiled code cannot raise."""

import numbers
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cat_jax.errors import UsageError, check_choice
from cat_jax.types import Array, per_image

PixelRange = tuple[float, float] | None
NORMS = ("linf", "l2", "l1")
DTYPES = ("float16", "bfloat16", "float32", "float64")


def check_batch(images: Any, labels: Any) -> None:
    """Raises unless images are [B, H, W, C] floats in [0, 1] and labels are [B] integers."""
    for name, value in (("images", images), ("labels", labels)):
        if not isinstance(value, jax.Array | np.ndarray):
            raise UsageError(
                f"{name} are a {type(value).__name__}; expected an array of NumPy or JAX: "
                f"jnp.asarray({name})."
            )
    if images.ndim != 4 or str(images.dtype) not in DTYPES:
        raise UsageError(
            f"images are {images.dtype}{list(images.shape)}; expected floats [B, H, W, C] in "
            f"[0, 1]: {_way_to_floats(images)}."
        )
    if labels.shape != images.shape[:1] or not jnp.issubdtype(labels.dtype, jnp.integer):
        raise UsageError(
            f"labels are {labels.dtype}{list(labels.shape)} for {len(images)} images; "
            "expected one integer for each."
        )
    if is_concrete(images) and images.size:
        low, high = _span(images)
        if not (low >= 0.0 and high <= 1.0):  # Written as `not`, so that NaN fails too.
            raise UsageError(
                f"images span [{low:.4g}, {high:.4g}]; expected [0, 1]: "
                "mean and std belong inside the network."
            )


def check_labels(labels: Array, num_classes: int) -> None:
    """Raises unless every label is a class, because any other label would count as fooled."""
    if not is_concrete(labels):
        return
    low, high = _span(labels)
    if not (low >= 0 and high < num_classes):
        raise UsageError(
            f"labels span [{low}, {high}]; logits have {num_classes} classes: "
            f"expected [0, {num_classes - 1}]."
        )


def check_norm(norm: str) -> None:
    """Raises unless `norm` is one of `NORMS`."""
    check_choice("norm", norm, NORMS)


def check_radius(norm: str = "linf", /, **radii: Any) -> None:
    """Raises unless each value is a radius on the [0, 1] pixel scale.

    The L-infinity distance of two images is at most 1; other distances may be larger.
    """
    largest = 1.0 if norm == "linf" else np.inf
    for name, value in radii.items():
        if not is_concrete(value):
            continue
        values = np.asarray(value, np.float64)
        if not np.all((values >= 0) & (values <= largest) & np.isfinite(values)):
            span = "[0, 1]" if norm == "linf" else "a finite number from 0"
            raise UsageError(
                f"{name}={value}; expected {span}, on the scale of the images: "
                f"8 of 255 is {name}=8/255."
            )


def as_radius(name: str, value: Any, images: Array, norm: str = "linf") -> Array | float:
    """A radius on the [0, 1] pixel scale, or one for each image as [B, 1, 1, 1].

    Raises:
      UsageError: for text, another shape, or a value that is negative, not finite, or in L-infinity
        above 1.
    """
    if not isinstance(value, jax.Array) and np.asarray(value).dtype.kind not in "fiu":
        raise UsageError(f"{name}={value!r}; expected a number: 8 of 255 is 8/255.")
    shape, total = np.shape(value), len(images)
    if shape not in ((), (total,), (total, 1, 1, 1)):
        raise UsageError(
            f"{name} has the shape {list(shape)}; expected one number, or one for each of the "
            f"{total} images: [{total}] or [{total}, 1, 1, 1]."
        )
    check_radius(norm, **{name: value})
    if type(value) in (int, float):
        return float(value)
    radius = jnp.asarray(value, images.dtype)
    return per_image(radius) if radius.ndim == 1 else radius


def check_count(least: int = 1, /, **counts: Any) -> None:
    """Raises unless each value is an integer of at least `least`."""
    for name, value in counts.items():
        if not is_concrete(value):
            continue
        is_number = isinstance(value, numbers.Number | np.ndarray | jax.Array)
        if not is_number or not np.issubdtype(np.asarray(value).dtype, np.integer):
            raise UsageError(f"{name}={value!r}; expected an integer.")
        if value < least:
            raise UsageError(f"{name}={value}; expected at least {least}.")


def check_share(**shares: Any) -> None:
    """Raises unless each value is a number in [0, 1]."""
    for name, value in shares.items():
        _check_number(name, value, "[0, 1]", lambda number: (number >= 0) & (number <= 1))


def check_positive(**values: Any) -> None:
    """Raises unless each value is a finite number above 0."""
    for name, value in values.items():
        _check_number(
            name, value, "a number above 0", lambda number: (number > 0) & np.isfinite(number)
        )


def _check_number(name: str, value: Any, expected: str, is_fine: Callable[[Any], Any]) -> None:
    is_number = isinstance(value, numbers.Real | jax.Array | np.ndarray)
    if not is_number or (is_concrete(value) and not np.all(is_fine(value))):
        raise UsageError(f"{name}={value!r}; expected {expected}.")


def as_pixel_range(pixel_range: Any) -> PixelRange:
    """The pixel range as floats (low, high), or None.

    Raises:
      UsageError: unless it is None, or has low < high within [0, 1].
    """
    if pixel_range is None:
        return None
    try:
        low, high = map(float, pixel_range)
    except (TypeError, ValueError):
        low, high = np.nan, np.nan
    if not 0 <= low < high <= 1:
        raise UsageError(
            f"pixel_range={pixel_range}; expected (low, high) in [0, 1], or None to clip nothing."
        )
    return low, high


def as_key(key: Any) -> Array:
    """Keys of the kind that `jax.random.key` makes; wraps raw keys.

    Raises:
      UsageError: for anything else, such as a seed.
    """
    if key is None:
        raise UsageError("key is None; expected one as jax.random.key(0) makes it.")
    dtype = jnp.result_type(key)
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return key
    raw = jax.random.key_data(jax.random.key(0))
    if dtype == raw.dtype and jnp.shape(key)[-1:] == raw.shape:
        return jax.random.wrap_key_data(key)
    raise UsageError(
        f"key is {dtype}{list(jnp.shape(key))}; expected one as jax.random.key(0) makes it, or "
        "one for each image."
    )


def is_concrete(value: Any) -> bool:
    """Whether `value` has numbers that can be read now; a tracer has none."""
    return not isinstance(value, jax.core.Tracer)


def warn_of_short_path(
    epsilon: Array | float, step_size: Array | float, num_steps: int, norm: str = "linf"
) -> None:
    """Warns if an attack that starts at the natural image cannot reach the edge of its ball."""
    if not (is_concrete(epsilon) and is_concrete(step_size)):
        return
    radius, step = (float(np.max(np.asarray(value))) for value in (epsilon, step_size))
    if num_steps * step >= radius * (1 - 1e-6):
        return
    moved = "a pixel" if norm == "linf" else "an image"
    warnings.warn(
        f"num_steps={num_steps} of step_size={step:.4g} move {moved} by at most "
        f"{num_steps * step:.4g}, less than epsilon={radius:.4g}: the attack cannot reach the edge "
        f"of its ball; set step_size to epsilon/4, {radius / 4:.4g}, or take more steps.",
        stacklevel=3,
    )


def _way_to_floats(images: Array) -> str:
    """Remedy for images that are not floats [B, H, W, C]."""
    if images.ndim == 3:
        return "add an axis, images[None] for one image, images[..., None] for one channel"
    kind = str(images.dtype)
    is_binary = kind == "bool"
    if jnp.issubdtype(images.dtype, jnp.integer) and is_concrete(images) and images.size:
        is_binary = _span(images)[1] == 1
    if is_binary:
        return "they are 0 and 1 already, so images.astype(jnp.float32), without a division"
    if kind in ("uint8", "uint16"):
        return f"images.astype(jnp.float32) / {255 if kind == 'uint8' else 65535}"
    return "images.astype(jnp.float32), divided by the largest value that a pixel can have"


def _span(values: Array) -> tuple[Any, Any]:
    """Minimum and maximum, computed now even while `jit` traces the caller."""
    with jax.ensure_compile_time_eval():
        return jnp.min(values).item(), jnp.max(values).item()
