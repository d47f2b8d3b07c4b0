"""Networks: sizes, initialisation, modes, dtypes."""

import math
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from slow_cases import slow

from cat_jax import networks
from cat_jax.networks.inside import ACTIVATIONS

MNIST, CIFAR = (1, 28, 28, 1), (1, 32, 32, 3)
PARAMETERS = [  # As counted in the published code.
    (networks.SmallCNN(), MNIST, 379_702),
    (networks.SmallMask(), MNIST, 223_233),
    (networks.PreActResNet18(), CIFAR, 11_172_170),
    (networks.PreActResNet18(num_classes=100), CIFAR, 11_218_340),
    (networks.WideResNet(), CIFAR, 46_160_474),
    (networks.ResNet18(), CIFAR, 11_173_962),
    (networks.ResNetMask(), CIFAR, 11_182_659),
    (networks.OnesMask(), CIFAR, 0),
]


def inputs_of(module, shape):
    images = jnp.zeros(shape)
    return (images, images) if type(module).__name__.endswith("Mask") else (images,)


def size(tree):
    return sum(x.size for x in jax.tree.leaves(tree))


@pytest.mark.parametrize("module, shape, count", PARAMETERS)
def test_number_of_parameters(module, shape, count):
    made = jax.eval_shape(module.init, jax.random.key(0), *inputs_of(module, shape))
    assert size(made.get("params", {})) == count


INITIALISED = [
    (networks.SmallCNN(), MNIST),
    slow(networks.SmallMask(), MNIST),
    slow(networks.PreActResNet18(), CIFAR),
    slow(networks.ResNetMask(), CIFAR),
    (networks.WideResNet(depth=10, widen_factor=4), CIFAR),
]


SMALL = [  # Of every kind, small enough to run.
    (networks.SmallCNN(), (2, 8, 8, 1)),
    (networks.SmallMask(), (2, 8, 8, 1)),
    (networks.WideResNet(depth=10, widen_factor=1), (2, 8, 8, 3)),
]
LARGE = [
    (networks.PreActResNet18(), (2, 8, 8, 3)),
    (networks.ResNet18(), (2, 8, 8, 3)),
    (networks.ResNetMask(), (2, 8, 8, 3)),
]


@pytest.mark.parametrize("module, shape", SMALL + LARGE)
def test_pixels_weights_and_outputs_keep_their_precision_around_a_bfloat16_inside(module, shape):
    half = module.clone(dtype=jnp.bfloat16)
    inputs = inputs_of(half, shape)
    variables = jax.eval_shape(half.init, jax.random.key(0), *inputs)

    def run(variables, *inputs):
        return half.apply(variables, *inputs, train=True, mutable=["batch_stats"])

    kept = jax.tree.leaves((variables, jax.eval_shape(run, variables, *inputs)))
    assert {leaf.dtype for leaf in kept} == {jnp.dtype("float32")}
    steps = jax.jit(run).lower(variables, *inputs).as_text()
    seen = re.findall(r"stablehlo\.convolution.* : \(tensor<[\dx]*x(\d+)x(\w+)>", steps)
    few, *more = sorted({(int(channels), dtype) for channels, dtype in seen})
    assert few == (shape[-1], "f32") and {d for _, d in more} == {"bf16"}


def loss_and_gradients(module, shape, rounded=None):
    """Of random images, in training mode; weights and images are rounded to a dtype."""
    images = jax.random.uniform(jax.random.key(1), shape)
    inputs = (images, 0.1 * images) if len(inputs_of(module, shape)) > 1 else (images,)

    def loss(variables, inputs):
        outputs, _ = module.apply(variables, *inputs, train=True, mutable=["batch_stats"])
        return jnp.mean(outputs**2)

    given = jax.jit(module.init)(jax.random.key(0), *inputs), inputs
    if rounded is not None:
        given = jax.tree.map(lambda leaf: leaf.astype(rounded).astype(leaf.dtype), given)
    return jax.jit(jax.value_and_grad(loss, (0, 1)))(*given)


@pytest.mark.slow
@pytest.mark.parametrize("module, shape", SMALL + LARGE)
def test_a_bfloat16_inside_moves_gradients_as_rounded_weights_and_images_do(module, shape):
    shape = (8, 16, 16, shape[-1])  # Batch norm over few numbers would make noise of any rounding.

    def flat(*args):
        leaves = jax.tree.leaves(loss_and_gradients(*args))
        return jnp.concatenate([leaf.ravel() for leaf in leaves])

    exact = flat(module, shape)
    inside = jnp.linalg.norm(flat(module.clone(dtype=jnp.bfloat16), shape) - exact)
    around = jnp.linalg.norm(flat(module, shape, jnp.bfloat16) - exact)
    size = jnp.linalg.norm(exact)
    # Max pooling has ties in bfloat16 that rounded weights alone do not make: 3% of SmallCNN's.
    assert 1e-5 * size < inside < 1.5 * around + 0.04 * size and around < 0.3 * size


@pytest.mark.slow
@pytest.mark.parametrize("module, shape", [SMALL[-1], *LARGE])
def test_recomputed_blocks_give_the_same_gradients_and_names(float64, module, shape):
    kept, recomputed = (
        loss_and_gradients(each, shape) for each in (module, module.clone(remat=True))
    )
    chex.assert_trees_all_close(kept, recomputed, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "remat, dtype, gigabytes",
    [(False, None, 4.96), (True, None, 0.96), (True, jnp.bfloat16, 0.58)],
)
def test_what_a_wide_network_keeps_for_its_backward_pass(remat, dtype, gigabytes):
    """WRN-34-10 at batch 128; a step of CAT keeps that of two views at a time."""
    module = networks.WideResNet(remat=remat, dtype=dtype)
    images = jax.ShapeDtypeStruct((128, 32, 32, 3), jnp.float32)
    variables = jax.eval_shape(module.init, jax.random.key(0), images)

    def backward(variables, images):
        def total(params):
            given = {**variables, "params": params}
            return jnp.sum(module.apply(given, images, train=True, mutable=["batch_stats"])[0])

        return jax.vjp(total, variables["params"])[1]

    kept = jax.tree.leaves(jax.eval_shape(backward, variables, images))
    found = sum(array.size * array.dtype.itemsize for array in kept)
    assert found / 1e9 == pytest.approx(gigabytes, abs=0.005)


@pytest.mark.slow
@pytest.mark.parametrize("module, shape", INITIALISED)
def test_initialisation_is_the_published_one(module, shape):
    """Kernels U(-b, b), b = 1 / sqrt(fan_in), but WRN's N(0, 2 / fan_out); biases U(-b, b) or 0."""
    made = jax.jit(module.init)(jax.random.key(0), *inputs_of(module, shape))
    params = flatten_dict(made["params"])
    for path, value in params.items():
        if path[-1] == "kernel":
            check_kernel(path, np.asarray(value), isinstance(module, networks.WideResNet))
        elif path[-1] == "scale" or (*path[:-1], "scale") in params:
            np.testing.assert_array_equal(value, 1.0 if path[-1] == "scale" else 0.0)
        elif isinstance(module, networks.WideResNet):
            np.testing.assert_array_equal(value, 0.0)
        else:
            fan_in = np.prod(params[(*path[:-1], "kernel")].shape[:-1])
            assert 0 < np.abs(value).max() <= fan_in**-0.5 * (1 + 1e-6), path
            if value.size >= 64:
                assert np.abs(value).max() >= 0.8 * fan_in**-0.5, path


def check_kernel(path, kernel, wide):
    """The standard deviation within five of its own standard errors."""
    if wide and kernel.ndim == 4:
        std, kurtosis = np.sqrt(2 / (kernel[:, :, 0].size)), 3.0
    else:
        bound = np.prod(kernel.shape[:-1]) ** -0.5
        std, kurtosis = bound / np.sqrt(3), 1.8
        assert 0.9 * bound <= np.abs(kernel).max() <= bound * (1 + 1e-6), path
    error = np.sqrt((kurtosis - 1) / (4 * kernel.size))
    assert abs(kernel.std() / std - 1) <= 5 * error, path
    assert abs(kernel.mean()) <= 5 * std / np.sqrt(kernel.size), path


def test_wide_resnet_refuses_a_depth_that_has_no_blocks_to_share():
    with pytest.raises(ValueError, match=r"depth=30; expected 6n \+ 4"):
        networks.WideResNet(depth=30).init(jax.random.key(0), jnp.zeros(CIFAR))


@pytest.mark.parametrize("sees, channels", [("sum", 3), ("pair", 6)])
def test_what_the_mask_network_sees(sees, channels):
    images = jnp.zeros((1, 32, 32, 3))
    module = networks.ResNetMask(sees=sees)
    made = jax.eval_shape(module.init, jax.random.key(0), images, images)
    assert made["params"]["conv1"]["kernel"].shape == (3, 3, channels, 64)
    assert made["params"]["conv2"]["kernel"].shape[-1] == 3


def test_activations_in_closed_form():
    x = np.linspace(-4, 4, 9, dtype=np.float32)
    want = {
        "relu": np.maximum(x, 0),
        "silu": x / (1 + np.exp(-x)),
        "gelu": [v / 2 * (1 + math.erf(v / math.sqrt(2))) for v in x],
    }
    assert want.keys() == ACTIVATIONS.keys()
    for name, values in want.items():
        np.testing.assert_allclose(ACTIVATIONS[name](x), values, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "make, shape",
    [
        (networks.SmallCNN, MNIST),
        (lambda activation: networks.WideResNet(10, 10, 1, activation=activation), CIFAR),
        slow(networks.PreActResNet18, CIFAR),
        slow(networks.ResNet18, CIFAR),
    ],
)
def test_a_network_has_its_activation_in_every_place(make, shape):
    def operations(activation):
        module = make(activation=activation)
        variables = jax.eval_shape(module.init, jax.random.key(0), jnp.zeros(shape))
        return str(jax.make_jaxpr(module.apply)(variables, jnp.zeros(shape)))

    relu, silu = operations("relu"), operations("silu")
    assert relu.count("relu") and "logistic" not in relu
    assert "relu" not in silu and "logistic" in silu
