"""The training steps of golden/cat_step: networks, attack, batches, and how close a step must come.

In float64 all is computed. In float32 the sign attack on an untrained network is chaotic, so
golden's own delta replaces the attack, and running statistics, which come from it, are not
compared.
"""

import dataclasses
import functools

import golden
import jax
import jax.numpy as jnp
import numpy as np
import optax
from recorder import Recorder, keep_gradient

from cat_jax import attacks, methods, networks, objectives
from cat_jax.step.state import TrainState, network_state
from cat_jax.step.train_step import make_train_step, pmap_step
from cat_jax.types import DEVICES
from cat_jax.weights import pytorch_names

NAMES = {"mnist": ("SmallCNN", "SmallMask"), "cifar": ("PreActResNet18", "ResNetMask")}
GOLDEN_NAMES = {
    "mnist": ("cat_mnist_f", "cat_mnist_g"),
    "cifar": ("cat_preactresnet18_c10", "cat_cifar_mask"),
}
SHAPES = {"mnist": (1, 28, 28), "cifar": (3, 32, 32)}
# Of logits and masks, relative to the largest; of losses; of tensors, relative to the norm.
OUTPUTS = {"float64": 1e-10, "float32": 1e-5}
LOSSES = {"float64": 1e-11, "float32": 1e-6}
TENSORS = {"float64": 1e-9, "float32": 5e-5}  # On MNIST the norms alone agree to 1.2e-5.
# How many times as much float32 gets after the first update. Adam divides gradients near 0 by
# their own size. On CIFAR the gradient jumps where a ReLU input lies within rounding of 0: for
# which tag it does depends on the version of XLA, and golden's own float32 run has it in cent.
SLACK = {"mnist": 50, "cifar": 200}


class GoldenStep:
    """One tag of golden/cat_step, ready to be stepped through."""

    def __init__(self, tag, dtype, record=True):
        self.tag, self.dtype, self.recorder = tag, dtype, Recorder(record)
        self.meta, self.arrays = golden.load("cat_step")
        self.kind, self.attack_loss = tag.split("_")
        self.slack = SLACK[self.kind] if dtype == "float32" else 1
        self.hyper, seeds = self.meta["_meta"][self.kind], self.meta["_meta"]
        shape = (self.hyper["steps"], self.hyper["batch"], *SHAPES[self.kind])
        self.images = jnp.asarray(golden.uniform(seeds["input_seed"], shape), dtype)
        self.labels = jnp.stack(self.each_step("labels"))
        variables = map(golden.variables, NAMES[self.kind], GOLDEN_NAMES[self.kind])
        self.tx = optax.chain(keep_gradient(), *self.optimizer())
        self.state = TrainState(jnp.int32(0), *(network_state(v, self.tx) for v in variables))

    def each_step(self, key, tag=None):
        steps = range(self.hyper["steps"])
        return [self.arrays[f"{tag or self.tag}/step{k}/{key}"] for k in steps]

    def optimizer(self):
        if self.kind == "mnist":
            return (optax.adam(1e-3),)
        return optax.add_decayed_weights(5e-4), optax.sgd(0.1, momentum=0.9)

    def modules(self):
        if self.kind == "mnist":
            return networks.SmallCNN(), networks.SmallMask()
        normaliser = golden.normaliser(GOLDEN_NAMES["cifar"][0])
        f = networks.PreActResNet18(**normaliser, axis_name=DEVICES)
        return f, networks.ResNetMask(axis_name=DEVICES)

    def attack(self):
        """From golden's starts, or in float32 to golden's points, each found by its image."""
        key, tag = ("start", f"{self.kind}_cw") if self.dtype == "float64" else ("delta", None)
        stored = jnp.asarray(golden.nhwc(np.stack(self.each_step(key, tag))), self.dtype)
        flat = (-1, *self.images.shape[2:])
        every_image = self.images.reshape(flat)
        every_stored = every_image + stored.reshape(flat)
        clipped = self.kind == "cifar"
        pgd = self.pgd((0.0, 1.0) if clipped else None)

        def attack(apply, state, images, labels, keys):
            same = jnp.all(every_image[None] == images[:, None], axis=(2, 3, 4))
            found = every_stored[jnp.argmax(same, axis=1)]
            if self.dtype == "float64":
                start = jnp.clip(found, 0, 1) if clipped else found
                found, state = pgd(apply, state, images, labels, keys, start=start)
            self.recorder.keep("adversarial", found)
            return found, state

        return attacks.closing_forward(attack) if clipped else attack

    def pgd(self, pixel_range):
        margin = objectives.AdversarialMargin(self.hyper["cw_k"])
        loss = margin if self.attack_loss == "cw" else objectives.adversarial_cross_entropy
        return functools.partial(
            attacks.pgd_with_state,
            epsilon=self.hyper["eps"],
            step_size=self.hyper["alpha"],
            num_steps=self.hyper["iters"],
            loss=self.recorder.loss("attack", loss),
            pixel_range=pixel_range,
        )

    def step(self, num_devices=1):
        """The compiled step, which records; batches come as [D, B/D, ...]."""
        method = methods.cat(self.attack(), beta=self.hyper["beta"], beta1=self.hyper["beta1"])
        method = dataclasses.replace(
            method,
            classifier_loss=self.recorder.loss("theta", method.classifier_loss),
            mask_loss=self.recorder.loss("phi", method.mask_loss),
        )
        f, g = self.modules()
        step = make_train_step(method, f, self.recorder.module("mask", g), self.tx, self.tx)
        return pmap_step(step, jax.local_devices()[:num_devices])

    def batch(self, k, num_devices=1):
        def split(x):
            return x.reshape(num_devices, -1, *x.shape[1:])

        return {"image": split(self.images[k]), "label": split(self.labels[k])}

    def slack_of(self, k, key=""):
        return self.slack if k > 0 or "phi" in key else 1

    def check_losses(self, k, metrics):
        want = self.meta[f"{self.tag}/step{k}"]
        for name, key in (("classifier_loss", "theta_loss"), ("mask_loss", "phi_loss")):
            atol = LOSSES[self.dtype] * self.slack_of(k, key)
            np.testing.assert_allclose(metrics[name], want[key], rtol=atol, atol=atol)

    def check_outputs(self, k, seen):
        """Delta, both masks, and the four sets of logits."""
        tolerance = OUTPUTS[self.dtype]
        at, close = f"{self.tag}/step{k}", functools.partial(np.testing.assert_allclose, rtol=0)
        delta = golden.nhwc(self.arrays[f"{at}/delta"])
        atol = 1e-12 if self.dtype == "float64" else 1e-7
        close(seen["adversarial"][0] - self.images[k], delta, atol=atol)
        for mask in seen["mask"]:  # Before and after theta's update: the same.
            close(mask, golden.nhwc(self.arrays[f"{at}/M"]), atol=tolerance * self.slack_of(k))
        (theta, _), (phi, _) = seen["theta"][0], seen["phi"][0]
        logits = dict(
            cali_logits_theta=theta.calibrated,
            nat_logits_theta=theta.natural,
            adv_logits_phi=phi.adversarial,
            cali_logits_phi=phi.calibrated,
        )
        for key, got in logits.items():
            want = self.arrays[f"{at}/{key}"]
            atol = tolerance * np.abs(want).max() * self.slack_of(k, key)
            close(got, want, atol=atol, err_msg=key)

    def check_attack_losses(self, k, seen):
        if self.attack_loss == "cw":  # Ours is the published value plus kappa, for each example.
            values = [each.sum() - self.hyper["cw_k"] * len(each) for _, each in seen["attack"]]
        else:
            values = [each.mean() for _, each in seen["attack"]]
        want = self.arrays[f"{self.tag}/step{k}/attack_loss_per_iter"]
        np.testing.assert_allclose(sorted(values), sorted(want), rtol=0, atol=1e-8)

    def check_networks(self, k, state, after=True):
        """Gradients, and after the update parameters and running statistics, of f and g."""
        both = zip("fg", NAMES[self.kind], (state.classifier, state.mask_net), strict=True)
        for letter, name, net in both:
            at = f"{self.tag}/step{k}/{letter}"
            if letter == "g" and self.kind == "cifar" and self.dtype == "float32":
                continue  # After f's jump, a hundredth off in golden's own float32 run.
            grads = pytorch_names.to_state_dict(name, {"params": net.opt_state[0]})
            self.check_tensors(grads, f"{at}_grad")
            variables = {"params": net.params, "batch_stats": net.batch_stats}
            current = pytorch_names.to_state_dict(name, variables)
            if after:
                self.check_tensors(current, f"{at}_param_after")
            running = [key for key in self.arrays if key.startswith(f"{at}_bn_after/")]
            assert len(running) == (4 if self.kind == "cifar" else 0)
            for key in running if self.dtype == "float64" else ():
                got, want = current[key.rsplit("/", 1)[1]], self.arrays[key]
                np.testing.assert_allclose(got, want, rtol=0, atol=1e-10, err_msg=key)

    def check_tensors(self, got, prefix):
        """Every tensor's norm and cosine sum; all entries of those that are stored."""
        tolerance, close = TENSORS[self.dtype], np.testing.assert_allclose
        tolerance *= self.slack if self.kind == "cifar" else 1
        for name, (norm, signature) in self.meta[prefix].items():
            flat = got[name].ravel().astype(np.float64)
            mine = np.linalg.norm(flat), flat @ np.cos(np.arange(flat.size))
            atol = tolerance * norm
            close(mine, (norm, signature), rtol=0, atol=atol, err_msg=f"{prefix} {name}")
            if f"{prefix}/{name}" in self.arrays:
                want, atol = self.arrays[f"{prefix}/{name}"], tolerance * max(1, norm)
                close(got[name], want, rtol=0, atol=atol, err_msg=f"{prefix} {name}")
