"""The phases of Algorithm 1: attack and calibrate, update theta, update phi."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, cast

import chex
import flax
import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from jax import lax

from cat_jax.errors import UsageError
from cat_jax.methods import Method
from cat_jax.networks.record import training_mode
from cat_jax.step.state import NetworkState, variables_of
from cat_jax.step.weight_perturbation import perturbation
from cat_jax.types import DEVICES, Apply, Array, MixedLabels, PyTree, Views

Nets = tuple[NetworkState, NetworkState]  # Classifier and mask network: theta and phi.
Labels = Array | MixedLabels
Parts = Mapping[str, Any]  # "image", "label", "key": [parts, B/D/parts, ...].


@functools.partial(jax.jit, static_argnames=("module", "train"))
def forward(
    module: nn.Module, net: NetworkState, *inputs: Array, train: bool = True
) -> tuple[Array, NetworkState]:
    """Returns the output and `net`, in training mode with updated running statistics.

    It is jitted so that a step traces it once for all calls with equal arguments.
    """
    if not train:
        return cast(Array, module.apply(variables_of(net), *inputs)), net
    mode = training_mode(module)
    try:
        output, new = module.apply(variables_of(net), *inputs, **mode, mutable=["batch_stats"])
    except flax.errors.InvalidRngError as error:
        raise UsageError(
            f"{type(module).__name__} draws random numbers in training, as dropout does, which "
            "training steps do not provide; build it without."
        ) from error
    return cast(Array, output), net.replace(batch_stats=new.get("batch_stats", {}))


def forward_views(
    apply: Apply, net: NetworkState, images: Views, names: tuple[str, ...]
) -> tuple[Views, NetworkState]:
    """Returns the logits of the named views; runs one forward for each, in the given order."""
    logits = Views()
    for name in names:
        output, net = apply(net, getattr(images, name))
        chex.assert_rank(output, 2)
        logits = logits._replace(**{name: output})
    return logits, net


def descend(net: NetworkState, tx: optax.GradientTransformation, grads: PyTree) -> NetworkState:
    """Returns `net` after one optimizer step; `grads` are equal on all devices."""
    updates, opt_state = tx.update(grads, net.opt_state, net.params)
    return net.replace(params=optax.apply_updates(net.params, updates), opt_state=opt_state)


@dataclasses.dataclass(frozen=True)
class Phases:
    """The phases of a step; they run on every device under the axis `types.DEVICES`.

    Attributes:
      method: the attack and the losses.
      classifier, mask_net: f and g.
      classifier_tx, mask_tx: their optimizers.
      num_parts: number of equal parts, [parts, ...], that a device processes one after another;
        an update averages their gradients.
    """

    method: Method
    classifier: nn.Module
    mask_net: nn.Module
    classifier_tx: optax.GradientTransformation
    mask_tx: optax.GradientTransformation
    num_parts: int = 1

    def calibrate(self, nets: Nets, parts: Parts, step: Array) -> tuple[Nets, Views, Array]:
        """Returns the networks, three views of each part (Eqs. 9, 10), and the means of M."""
        method = self.method
        f = functools.partial(forward, self.classifier, train=method.train_mode_attack)
        hyper = {name: schedule(step) for name, schedule in method.schedules.items()}

        def one(nets: Nets, part: Mapping[str, Any]) -> tuple[Nets, tuple[Views, Array]]:
            (theta, phi), natural = nets, part["image"]
            adversarial, theta = method.attack(
                f, theta, natural, part["label"], part["key"], **hyper
            )
            delta = adversarial - natural
            mask, phi = forward(self.mask_net, phi, natural, delta)
            chex.assert_equal_shape((natural, adversarial, mask))
            views = Views(natural, adversarial, natural + mask * delta)
            return (theta, phi), (views, jnp.mean(mask))

        nets, (views, masks) = self._in_turn(one, nets, parts)
        return nets, views, masks

    def update_classifier(
        self, theta: NetworkState, views: Views, parts: Parts, step: Array
    ) -> tuple[NetworkState, Array]:
        """Returns theta after its update by the method's loss, Eq. 13 for CAT, and the loss.

        Adversarial weight perturbation takes the gradient at weights that were moved uphill.
        """
        gradient = functools.partial(self._mean_gradient, self._classifier_loss)
        gamma, seen = self.method.weight_perturbation, (views, parts["label"], parts["key"])
        if gamma is not None:
            _, uphill, _ = gradient(theta.params, theta, seen)
            shift = perturbation(theta.params, uphill, gamma(step))
            theta = theta.replace(params=optax.apply_updates(theta.params, shift))
        loss, grads, theta = gradient(theta.params, theta, seen)
        theta = descend(theta, self.classifier_tx, grads)
        if gamma is not None:
            theta = theta.replace(params=jax.tree.map(jnp.subtract, theta.params, shift))
        return theta, loss

    def update_mask_net(self, nets: Nets, views: Views, labels: Labels) -> tuple[Nets, Array]:
        """Returns the networks after the update of phi (Eq. 14), and its loss.

        Of theta only the running statistics change.
        """
        params = nets[1].params
        loss, grads, (theta, phi) = self._mean_gradient(
            self._mask_loss, params, nets, (views, labels)
        )
        return (theta, descend(phi, self.mask_tx, grads)), loss

    def close(self, theta: NetworkState, views: Views) -> NetworkState:
        """Returns theta after the forwards that only update its running statistics."""

        def one(theta: NetworkState, part: Views) -> tuple[NetworkState, None]:
            f = functools.partial(forward, self.classifier)
            return forward_views(f, theta, part, self.method.closing_views)[1], None

        return cast(NetworkState, self._in_turn(one, theta, views)[0])

    def _classifier_loss(
        self, params: PyTree, theta: NetworkState, images: Views, labels: Labels, keys: Array
    ) -> tuple[Array, NetworkState]:
        method, f = self.method, functools.partial(forward, self.classifier)
        theta = theta.replace(params=params)
        logits, new = forward_views(f, theta, images, method.classifier_views)
        loss = method.classifier_loss(logits, labels)
        if method.penalty is not None:
            f = functools.partial(f, train=method.train_mode_attack)
            # Other noise than that of the attack's start.
            keys = jax.vmap(functools.partial(jax.random.fold_in, data=1))(keys)
            loss = loss + method.penalty(f, theta, images.natural, labels, keys)
        return _mean(loss, labels), new

    def _mask_loss(
        self, params: PyTree, nets: Nets, images: Views, labels: Labels
    ) -> tuple[Array, Nets]:
        theta, phi = nets
        f = functools.partial(forward, self.classifier, train=self.method.train_mode_mask_loss)
        delta = images.adversarial - images.natural
        mask, phi = forward(self.mask_net, phi.replace(params=params), images.natural, delta)
        images = images._replace(calibrated=images.natural + mask * delta)
        logits, theta = forward_views(f, theta, images, self.method.mask_views)
        return _mean(self.method.mask_loss(logits, labels), labels), (theta, phi)

    def _mean_gradient(
        self, loss: Callable[..., tuple[Array, Any]], params: PyTree, carry: Any, parts: Any
    ) -> tuple[Array, PyTree, Any]:
        """Returns loss and gradient over the batch of all devices, and the new `carry`."""

        def add(sums: Any, part: Any) -> tuple[Any, None]:
            carry, *totals = sums
            (value, carry), grads = jax.value_and_grad(loss, has_aux=True)(params, carry, *part)
            return (carry, *jax.tree.map(jnp.add, tuple(totals), (value, grads))), None

        zeros = jnp.zeros((), jnp.result_type(float)), jax.tree.map(jnp.zeros_like, params)
        (carry, value, grads), _ = self._in_turn(add, (carry, *zeros), parts)
        grads = jax.tree.map(lambda total: total / self.num_parts, grads)
        return value / self.num_parts, lax.pmean(grads, DEVICES), carry

    def _in_turn(self, function: Callable[..., Any], carry: Any, parts: Any) -> tuple[Any, Any]:
        return lax.scan(function, carry, parts, unroll=self.num_parts == 1)


def _mean(losses: Array, labels: Labels) -> Array:
    """Returns the mean of the per-example losses of a method."""
    shape = jax.tree.leaves(labels)[0].shape
    if losses.shape != shape:
        raise UsageError(
            f"A loss of the method returns shape {losses.shape} for labels {shape}; "
            "expected one number for each example, [B]."
        )
    return jnp.mean(losses)


def cut(examples: PyTree, num_parts: int) -> PyTree:
    """Reshapes leaves [B, ...] to [num_parts, B / num_parts, ...].

    Raises:
      UsageError: during tracing, if `num_parts` does not divide the batch.
    """
    num_examples = len(jax.tree.leaves(examples)[0])
    if num_examples % num_parts:
        raise UsageError(
            f"A device's batch of {num_examples} images does not divide into {num_parts} parts; "
            "set config.batch_size to a multiple of devices times config.num_parts."
        )
    return jax.tree.map(lambda x: x.reshape(num_parts, -1, *x.shape[1:]), examples)
