"""Networks of RobustBench's entries: recognised, never guessed, with the logits of PyTorch."""

import collections
import importlib
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_runs
from slow_cases import slow

from cat_jax import networks, weights
from cat_jax.cli import modes
from cat_jax.errors import UsageError
from cat_jax.networks.record import named
from cat_jax.weights import pytorch_names, recognition, weight_files, zoo
from cat_jax.weights.weight_files import Part

CIFAR = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2471, 0.2435, 0.2616)}


def blank(network):
    """A state dict with the right names and shapes, of zeros that take no memory."""
    variables = jax.eval_shape(network.init, jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    zeros = jax.tree.map(lambda leaf: np.broadcast_to(np.float32(0), leaf.shape), variables)
    return pytorch_names.to_state_dict(network, zeros)


def random_entries(network, seed=0):
    random = np.random.default_rng(seed)
    return {
        name: (random.uniform(0.5, 1.5, value.shape) if name.endswith("running_var") else
               random.normal(0, 0.1, value.shape)).astype(np.float32)
        for name, value in blank(network).items()
    }  # fmt: skip


def save(path, entries):
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = {weights.CLASSIFIER: Part(entries, {})}
    (file,) = weight_files.write(path.with_suffix(""), "safetensors", parts)
    return file


def in_pytorch(torch, model, images):
    with torch.no_grad():
        return model(torch.tensor(images.transpose(0, 3, 1, 2))).numpy()


def images_of(*shape):
    return np.random.default_rng(1).uniform(size=shape).astype(np.float32)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make, network",
    [
        (lambda dm: dm.wide(10, 1), named("DMWideResNet").build(depth=10, widen_factor=1)),
        slow(lambda dm: dm.wide(28, 2), named("DMWideResNet").build(depth=28, widen_factor=2)),
        slow(lambda dm: dm.preact(), named("DMPreActResNet18").build()),
    ],
)
def test_a_file_of_deepminds_networks_loads_with_its_logits(make, network, tmp_path):
    torch = pytest.importorskip("torch")
    model = make(dm := importlib.import_module("dm_networks"))
    dm.randomised(model)
    file = tmp_path / "generated.pt"
    torch.save(
        {"model_state_dict": {f"module.{k}": v for k, v in model.state_dict().items()}}, file
    )
    loaded = weights.load(file)
    assert loaded.network == network.clone(**CIFAR, activation="silu")
    images = images_of(4, 32, 32, 3)
    logits = jax.jit(loaded.logits_fn)(images)
    expected = in_pytorch(torch, model, images)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    back = pytorch_names.to_state_dict(loaded.network, loaded.variables)
    model.load_state_dict({k: torch.tensor(v) for k, v in back.items()}, strict=False)
    np.testing.assert_array_equal(in_pytorch(torch, model, images), expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "network",
    [
        networks.PreActResNet18(shortcut="input"),
        networks.PreActResNet18(shortcut="input", last_norm=False, activation="silu"),
        networks.ResNet50(),
        networks.WideResNet(depth=10, widen_factor=2, head="cosine", activation="gelu"),
    ],
)
def test_a_network_has_the_logits_of_its_class_in_pytorch(network):
    torch = pytest.importorskip("torch")
    classes = importlib.import_module("cat_jax.weights.pytorch_classes")
    record = named(type(network).__name__)
    fields = {field: getattr(network, field) for field in record.fields}
    model = getattr(classes, record.name)(num_classes=10, image_shape=(32, 32, 3), **fields)
    entries = random_entries(network)
    result = model.load_state_dict({k: torch.tensor(v) for k, v in entries.items()}, strict=False)
    assert not result.unexpected_keys
    assert all(name.endswith("num_batches_tracked") for name in result.missing_keys)
    variables = pytorch_names.from_state_dict(network, entries)
    images = images_of(3, 32, 32, 3)
    logits = jax.jit(network.apply)(variables, images)
    expected = in_pytorch(torch, model.eval(), images)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_a_file_that_fits_two_networks_is_not_guessed(tmp_path):
    """Shortcuts of x or of relu(bn1(x)): the same names and shapes, other logits."""
    entries = random_entries(networks.PreActResNet18())
    constants = {"mu": np.array(CIFAR["mean"]), "sigma": np.array(CIFAR["std"])}
    file = save(tmp_path / "theirs.safetensors", entries | constants)
    with pytest.raises(UsageError, match=r"shortcut='activated' or shortcut='input', which cha"):
        weights.load(file)
    network = networks.PreActResNet18(**CIFAR, shortcut="input")
    assert weights.load(file, network).network == network
    message = r"add --config.classifier.shortcut=activated or --config.classifier.shortcut=input"
    config = small_runs.config(**{"classifier.name": "PreActResNet18"})
    config.classifier.update(CIFAR)
    with pytest.raises(UsageError, match=message):
        modes.evaluate_file(config, tmp_path / "new", str(file))
    assert weights.load(file, network, fields=["shortcut"]).network == network
    authors = save(tmp_path / "RN_b_5_b1_01_e8_cw.safetensors", entries)  # Without constants.
    assert weights.load(authors).network == network.clone(shortcut="activated")
    with pytest.raises(UsageError, match=r"shortcut='activated', expected 'input'; set that of"):
        weights.load(authors, network)


def test_the_activation_of_a_config_is_checked_too(tmp_path):
    network = named("DMWideResNet").build(depth=10, widen_factor=1, **CIFAR)
    file = save(tmp_path / "w.safetensors", random_entries(network))
    with pytest.raises(UsageError, match=r"activation='silu'.*--config.classifier.activation=silu"):
        weights.load(file, network, fields=["mean"])
    assert weights.load(file, network, fields=["mean", "activation"]).network == network
    assert weights.load(file, network).network == network


@pytest.mark.slow
def test_an_entry_is_known_by_the_folder_in_which_robustbench_stores_it(tmp_path):
    fast = networks.PreActResNet18(shortcut="input", last_norm=False)
    folder = tmp_path / "models" / "cifar10" / "Linf"
    file = save(folder / "Wong2020Fast.safetensors", random_entries(fast))
    assert weights.load(file).network == fast.clone(**CIFAR)
    plain = networks.WideResNet(depth=10, widen_factor=1)
    file = save(folder / "Standard.safetensors", random_entries(plain))
    with pytest.raises(UsageError, match=r"does not state how WideResNet.* normalises"):
        weights.load(file)
    extra = {"model_preact_hl1.1.weight": np.ones((2, 2), np.float32)}
    file = save(
        folder / "Andriushchenko2020Understanding.safetensors", random_entries(fast, 1) | extra
    )
    assert weights.load(file).network == fast


DISTINCT = collections.Counter(group.network for group in zoo.GROUPS)
HUGE = [name for name in DISTINCT if any(name.endswith(end) for end in ("-16", "-8", "-20", "-15"))]


@pytest.mark.parametrize("name", [slow(name) if name in HUGE else name for name in DISTINCT])
def test_every_entry_of_the_list_is_recognised(name):
    """By names and shapes; the list adds what they do not show."""
    base, *sizes = name.split("-")
    fields = dict(zip(("depth", "widen_factor"), map(int, sizes), strict=bool(sizes)))
    for group in zoo.GROUPS:
        if group.network != name:
            continue
        made = named(base).build(**(fields | dict(group.arguments)))
        path = pathlib.Path("cifar10") / "Linf" / f"{group.names[-1]}.pt"
        stated = recognition.arguments_of_file(path, blank(made))
        assert stated == dict(group.arguments)
        network = recognition.infer(blank(made), {}, stated)
        assert network == made and recognition.describe_short(network) == name


def test_no_entry_is_listed_twice_with_one_network():
    pairs = [(group.network, name) for group in zoo.GROUPS for name in group.names]
    assert len(pairs) == len(set(pairs))
