"""The networks of golden/networks, with their normalisation and their images."""

import golden
import jax.numpy as jnp

from cat_jax import networks

CASES = {
    "cat_mnist_f": "SmallCNN",
    "cat_mnist_g": "SmallMask",
    "cat_preactresnet18_c10": "PreActResNet18",
    "cat_preactresnet18_c100": "PreActResNet18",
    "cat_wideresnet34_10_c10": "WideResNet",
    "cat_cifar_mask": "ResNetMask",
    "baseline_resnet18_c10": "ResNet18",
}


def build(name):
    """apply(variables, images, **kwargs) of a golden network; a mask sees delta = 0."""
    info = golden.load("networks")[0][name]
    if info["kind"] == "mask":
        module = getattr(networks, CASES[name])()
        return lambda v, x, **kw: module.apply(v, x, jnp.zeros_like(x), **kw)
    num_classes = info["state_dict"][-1][1][0]
    module = getattr(networks, CASES[name])(num_classes=num_classes, **golden.normaliser(name))
    return module.apply


def images_of(name, dtype):
    meta, _ = golden.load("networks")
    shape = meta[name]["input_shape"]
    return jnp.asarray(golden.uniform(meta["_meta"]["input_seed"], shape), dtype)
