"""One training step of Algorithm 1, on one or several devices."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from cat_jax.data.augment import Augment, to_unit, unchanged
from cat_jax.data.augment import cutmix as mix
from cat_jax.methods import Method
from cat_jax.step.phases import Parts, Phases, cut
from cat_jax.step.state import TrainState, variables_of
from cat_jax.types import DEVICES, Array, Schedule

Batch = Mapping[str, Any]  # Arrays of NumPy or of JAX.
Metrics = dict[str, Array]
StepFn = Callable[[TrainState, Batch, Array], tuple[TrainState, Metrics]]


def example_keys(key: Array, step: Array, num_examples: int) -> tuple[Array, Array]:
    """Two keys per example, [B/D] each, from (key, step, position in the global batch).

    They depend on the position of an example in the batch, and not on its device.
    """
    positions = lax.axis_index(DEVICES) * num_examples + jnp.arange(num_examples)
    keys = jax.vmap(functools.partial(jax.random.fold_in, jax.random.fold_in(key, step)))(positions)
    pairs = jax.vmap(jax.random.split)(keys)
    return pairs[:, 0], pairs[:, 1]


def make_train_step(
    method: Method,
    classifier: nn.Module,
    mask_net: nn.Module,
    classifier_tx: optax.GradientTransformation,
    mask_tx: optax.GradientTransformation,
    augment: Augment = unchanged,
    *,
    num_parts: int = 1,
    cutmix: float = 0.0,
    average: Schedule | None = None,
) -> StepFn:
    """Returns a function step(state, batch, key) -> (state, metrics), for `pmap_step`.

    A batch is {"image": [B/D, H, W, C], uint8 or floating in [0, 1], "label": [B/D]}.

    Args:
      method: the attack and the losses.
      classifier, mask_net: f and g.
      classifier_tx, mask_tx: their optimizers.
      augment: augmentation of the natural images.
      num_parts: number of equal parts of a device's batch. The step processes one after another
        and averages their gradients: it needs less memory and computes the same, except that
        batch statistics are those of a part.
      cutmix: probability that an image is mixed with another; the method's losses then take
        `MixedLabels`, as `objectives.mixed` makes them.
      average: step -> share of the old average of f that remains; None: no average.
    """
    phases = Phases(method, classifier, mask_net, classifier_tx, mask_tx, num_parts)

    def train_step(state: TrainState, batch: Batch, key: Array) -> tuple[TrainState, Metrics]:
        parts = examples(augment, num_parts, state.step, batch, key, cutmix)
        labels, nets = parts["label"], (state.classifier, state.mask_net)
        (theta, phi), views, masks = phases.calibrate(nets, parts, state.step)
        theta, theta_loss = phases.update_classifier(theta, views, parts, state.step)
        (theta, phi), phi_loss = phases.update_mask_net((theta, phi), views, labels)
        theta = phases.close(theta, views)

        metrics = {"classifier_loss": theta_loss, "mask_loss": phi_loss, "mask": jnp.mean(masks)}
        state = state.replace(step=state.step + 1, classifier=theta, mask_net=phi)
        return finish(state, metrics, average)

    return train_step


def examples(
    augment: Augment, num_parts: int, step: Array, batch: Batch, key: Array, cutmix: float = 0.0
) -> Parts:
    """Returns the augmented batch in `num_parts` parts, with a key for each example."""
    labels = batch["label"]
    keys, augment_keys = example_keys(key, step, len(labels))
    images = augment(augment_keys, to_unit(batch["image"]))
    if cutmix:
        box_keys = jax.vmap(functools.partial(jax.random.fold_in, data=1))(augment_keys)
        images, labels = mix(box_keys, images, labels, cutmix)
    return cut({"image": images, "label": labels, "key": keys}, num_parts)


def several(train_step: StepFn) -> StepFn:
    """Wraps a step so that one call runs several steps without a return to the host.

    Batches and metrics have one more axis, [K, ...]. The call runs the first batch["count"] <= K
    of them; the other metrics are 0. One compilation serves every count.
    """

    def steps(state: TrainState, batches: Batch, key: Array) -> tuple[TrainState, Metrics]:
        rest = {name: value for name, value in batches.items() if name != "count"}

        def batch(i: Any) -> Batch:
            return {name: value[i] for name, value in rest.items()}

        def one(i: Array, carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
            state, metrics = train_step(carry[0], batch(i), key)
            return state, jax.tree.map(lambda all, new: all.at[i].set(new), carry[1], metrics)

        _, shapes = jax.eval_shape(train_step, state, batch(0), key)
        num_batches = len(batches["label"])
        zeros = jax.tree.map(lambda x: jnp.zeros((num_batches, *x.shape), x.dtype), shapes)
        return lax.fori_loop(0, batches["count"], one, (state, zeros))

    return steps


def finish(
    state: TrainState, metrics: Metrics, average: Schedule | None
) -> tuple[TrainState, Metrics]:
    """Averages metrics and running statistics over the devices, and updates the average of f.

    Parameters are equal on all devices already.
    """
    theta, phi = state.classifier, state.mask_net
    statistics = lax.pmean((theta.batch_stats, phi.batch_stats), DEVICES)
    theta, phi = (
        net.replace(batch_stats=new) for net, new in zip((theta, phi), statistics, strict=True)
    )
    state = state.replace(classifier=theta, mask_net=phi)
    if average is not None:
        share = 1 - average(state.step - 1)
        new = optax.incremental_update(variables_of(theta), state.average, share)
        state = state.replace(average=new)
    return state, lax.pmean(metrics, DEVICES)


def pmap_step(train_step: StepFn, devices: list[jax.Device] | None = None) -> StepFn:
    """Runs a step on all devices with `jax.pmap`; the batch is [D, B/D, ...].

    State and key are replicated. Each process passes the batches of its devices.
    """
    return jax.pmap(
        train_step,
        axis_name=DEVICES,
        in_axes=(None, 0, None),
        out_axes=(None, None),
        donate_argnums=(0,),
        devices=devices,
    )


def shard_map_step(train_step: StepFn, devices: list[jax.Device] | None = None) -> StepFn:
    """`pmap_step` with `jax.shard_map`, because `jax.pmap` is in maintenance mode."""
    mesh = Mesh(np.array(devices or jax.devices()), (DEVICES,))
    specs = (PartitionSpec(), PartitionSpec(DEVICES), PartitionSpec())
    shardings = tuple(NamedSharding(mesh, spec) for spec in specs)

    def on_device(state: TrainState, batch: Batch, key: Array) -> tuple[TrainState, Metrics]:
        return train_step(state, jax.tree.map(lambda x: x[0], batch), key)

    # Because check_vma=True would sum gradients before the step averages them, unlike pmap.
    mapped = jax.shard_map(
        on_device, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(), check_vma=False
    )
    compiled = jax.jit(
        mapped, in_shardings=shardings, out_shardings=shardings[0], donate_argnums=(0,)
    )

    def step(*arguments: Any) -> tuple[TrainState, Metrics]:
        return compiled(*multihost_utils.host_local_array_to_global_array(arguments, mesh, specs))

    return compiled if jax.process_count() == 1 else step


PARALLEL = {"pmap": pmap_step, "shard_map": shard_map_step}
