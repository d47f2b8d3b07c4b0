"""Our networks as PyTorch modules: logits and gradients are those of the PyTorch twin.

Skipped without PyTorch (extra `bench`), which warns of much: warnings are errors elsewhere.
"""

import importlib
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compiled_names
from jax.tree_util import Partial

from cat_jax import networks
from cat_jax.errors import UsageError

pytestmark = pytest.mark.filterwarnings("ignore")
torch = pytest.importorskip("torch")
BENCHMARKS = pathlib.Path(__file__).parent.parent / "benchmarks"
CIFAR = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2471, 0.2435, 0.2616)}
EPSILON = 8 / 255


@pytest.fixture(scope="module")
def robustbench():
    from cat_jax.weights import robustbench

    return robustbench


@pytest.fixture(scope="module")
def torch_networks():
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("torch_networks")
    sys.path.remove(str(BENCHMARKS))


def random_variables(network, image_shape):
    """Those of a fresh network, with scales and running variances that are not all one."""
    variables = jax.jit(network.init)(jax.random.key(0), jnp.zeros((1, *image_shape)))
    keys = iter(jax.random.split(jax.random.key(1), 200))
    return jax.tree.map(
        lambda leaf: leaf + jax.random.uniform(next(keys), leaf.shape, minval=-0.05, maxval=0.05),
        variables,
    )


@pytest.fixture(scope="module")
def small(robustbench, torch_networks):
    """(our module, the twin) of a SmallCNN on 8x8x3."""
    network, shape = networks.SmallCNN(), (8, 8, 3)
    variables = random_variables(network, shape)
    model = robustbench.Model(Partial(network.apply, variables))
    return model, torch_networks.twin(network, variables, shape)


def images_of(*shape):
    return torch.tensor(np.random.default_rng(0).uniform(size=shape).astype(np.float32))


def logits_and_grad(model, images, weights):
    images = images.clone().requires_grad_()
    logits = model(images)
    (grad,) = torch.autograd.grad((logits * weights).sum(), images)
    return logits.detach().numpy(), grad.numpy()


def assert_twins(model, twin, images):
    weights = images_of(len(images), 10)
    for ours, theirs in zip(
        logits_and_grad(model, images, weights),
        logits_and_grad(twin, images, weights),
        strict=True,
    ):
        assert ours.dtype == theirs.dtype == np.float32 and ours.shape == theirs.shape
        scale = np.abs(theirs).max()
        assert scale > 0
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5 * scale)


def test_logits_and_input_gradients_are_those_of_the_twin(small):
    assert_twins(*small, images_of(5, 3, 8, 8))


@pytest.mark.slow
def test_logits_and_input_gradients_of_a_residual_network(robustbench, torch_networks):
    network, shape = networks.PreActResNet18(**CIFAR), (32, 32, 3)
    variables = random_variables(network, shape)
    model = robustbench.Model(Partial(network.apply, variables))
    assert_twins(model, torch_networks.twin(network, variables, shape), images_of(3, 3, 32, 32))


def test_it_is_the_module_that_an_evaluator_expects(small, robustbench):
    model, _ = small
    images = images_of(6, 3, 8, 8)
    assert not model.training and model.to("cpu").eval() is model
    assert [p.requires_grad for p in model.parameters()] == [False]
    assert next(model.parameters()).device.type == "cpu"
    want = model(images)
    assert not want.requires_grad and torch.equal(model.train()(images), want)
    model.eval()
    with torch.no_grad():
        assert torch.equal(model(images), want)
    assert model(images.double()).dtype == torch.float64
    assert model(images[:0]).shape == (0, 10)
    with pytest.raises(UsageError, match=r"uint8 \[6, 3, 8, 8\]; expected floating"):
        model(images.byte())


def test_gradients_can_be_taken_again_of_one_forward_pass_as_fab_does(small):
    model, twin = small
    images = images_of(2, 3, 8, 8)
    ours, theirs = (images.clone().requires_grad_() for _ in range(2))
    logits, wanted = model(ours), twin(theirs)
    for label in range(3):
        (grad,) = torch.autograd.grad(logits[:, label].sum(), ours, retain_graph=True)
        (want,) = torch.autograd.grad(wanted[:, label].sum(), theirs, retain_graph=True)
        np.testing.assert_allclose(grad, want, rtol=1e-4, atol=1e-6)


def test_images_that_are_changed_in_place_afterwards_change_nothing(small):
    model, _ = small
    images = images_of(4, 3, 8, 8)
    want = model(images).clone()
    for _ in range(20):
        changed = images.clone()
        logits = model(changed)
        changed.zero_()
        assert torch.equal(logits, want)


def test_few_shapes_are_compiled(robustbench):
    network = networks.SmallCNN(num_classes=3)
    variables = random_variables(network, (8, 8, 3))
    model = robustbench.Model(Partial(network.apply, variables))
    with compiled_names() as names:
        for size in range(1, 33):
            model(images_of(size, 3, 8, 8))
    assert names.count("jit(_logits)") == 6  # 1, 2, 4, 8, 16, 32.


def test_pgd_of_torchattacks_finds_what_it_finds_on_the_twin(small):
    torchattacks = pytest.importorskip("torchattacks")
    images = images_of(16, 3, 8, 8)
    labels = small[0](images).argmax(-1)
    found = []
    for model in small:
        torch.manual_seed(0)
        attack = torchattacks.PGD(model, eps=EPSILON, alpha=EPSILON / 4, steps=5)
        found.append(attack(images, labels))
    assert (found[0] - images).abs().max() <= EPSILON + 1e-6
    assert (found[0] - found[1]).abs().lt(1e-6).float().mean() > 0.99

    def loss(x):
        return torch.nn.functional.cross_entropy(small[1](x), labels)

    assert loss(found[0]) > loss(images) + 1e-3
