"""Weights from files: whoever wrote them; and what does not fit is refused in one line that helps.

The networks are small: a wide ResNet of depth 10 and width 1 has every kind of entry.
"""

import pickle
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_runs
from slow_cases import slow

from cat_jax import networks, weights
from cat_jax.cli import modes
from cat_jax.configs import preact_cifar100
from cat_jax.errors import UsageError
from cat_jax.weights import pytorch_names, recognition, weight_files
from cat_jax.weights.weight_files import Part

CIFAR = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2471, 0.2435, 0.2616)}
WIDE = networks.WideResNet(depth=10, widen_factor=1, **CIFAR)
SMALL = networks.SmallCNN(num_classes=7)


def state_dict(network, image_shape=(32, 32, 3)):
    """Random entries of a network, but for running variances all around 0."""
    images = jnp.zeros((1, *image_shape))
    inputs = (images, images) if hasattr(network, "sees") else (images,)
    made = jax.eval_shape(network.init, jax.random.key(0), *inputs)
    random = np.random.default_rng(0)
    drawn = jax.tree.map(lambda s: random.normal(0, 0.1, s.shape).astype(np.float32), made)
    entries = pytorch_names.to_state_dict(type(network).__name__, drawn)
    return {k: abs(v) + 1 if k.endswith("running_var") else v for k, v in entries.items()}


@pytest.fixture(scope="module")
def wide():
    return state_dict(WIDE)


@pytest.fixture(scope="module")
def small():
    return state_dict(SMALL, (8, 12, 1))


def save(path, entries, about=None):
    """The file that `write` makes of one network."""
    suffix = path.suffix
    form = next(name for name, of in weight_files.SUFFIXES.items() if of == suffix)
    parts = {weights.CLASSIFIER: Part(entries, about or {})}
    (written,) = weight_files.write(path.with_suffix(""), form, parts)
    assert written == path
    return path


def same(loaded, entries):
    got = pytorch_names.to_state_dict(type(loaded.network).__name__, loaded.variables)
    assert got.keys() == entries.keys()
    for name, value in entries.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)


def buffers(*names):
    """CIFAR's constants as RobustBench's buffers hold them."""
    arrays = [np.array(CIFAR[kind], np.float32).reshape(1, 3, 1, 1) for kind in ("mean", "std")]
    return dict(zip(names, arrays, strict=True))


@pytest.mark.parametrize(
    "prefix, constants",
    [
        ("", ("mu", "sigma")),  # RobustBench.
        ("module.", ("module.mu", "module.sigma")),  # The same under DataParallel.
        slow("module.model.", ("module.normalize.mean", "module.normalize.std")),
        ("1.module.", ("0.mean", "0.std")),  # Sequential(Normalize, DataParallel).
        ("net.", ("mu", "sigma")),  # Any name of a module around the network.
        slow("net.module.", ("net.mu", "net.sigma")),
        slow("model.", ("mean", "std")),
    ],
)
def test_published_wrappings_and_normalisers_are_understood(prefix, constants, wide, tmp_path):
    entries = {prefix + name: value for name, value in wide.items()} | buffers(*constants)
    entries |= {
        f"{prefix}bn1.num_batches_tracked": np.array(7),
        f"{prefix}sub_block1.layer.0.bn1.weight": np.ones(16),
    }
    loaded = weights.load(save(tmp_path / "w.safetensors", entries))
    assert loaded.network == WIDE, "mean and std are the decimals that were rounded to float32"
    same(loaded, wide)
    same(weights.load(tmp_path / "w.safetensors", WIDE), wide)


@pytest.mark.parametrize(
    "network, image_shape",
    [
        (networks.SmallCNN(num_classes=3), (28, 28, 1)),
        (networks.StridedCNN(num_classes=3), (28, 28, 1)),
        (networks.SmallMask(sees="pair"), (8, 8, 3)),
        (networks.WideResNet(num_classes=5, depth=16, widen_factor=2), (32, 32, 3)),
    ],
)
def test_a_network_is_known_by_its_entries(network, image_shape, tmp_path):
    entries = state_dict(network, image_shape)
    about = {"mean": [], "std": []}
    loaded = weights.load(save(tmp_path / "w.safetensors", entries, about))
    assert loaded.network == network
    same(loaded, entries)


def test_a_bare_sequence_may_be_wrapped_too(small, tmp_path):
    """ "0.weight" is its first layer, "1.0.weight" that of the network behind a normaliser."""
    wrapped = {f"1.module.{name}": value for name, value in small.items()}
    file = save(tmp_path / "w.safetensors", wrapped)
    same(weights.load(file, SMALL, image_shape=(8, 12, 1)), small)


@pytest.mark.slow
def test_another_network_is_only_named_if_the_file_fits_it(tmp_path):
    """A deeper ResNet has the names of ResNet18, and more; without a last layer it is of none."""
    entries = state_dict(networks.ResNet18(num_classes=10))
    deeper = entries | {"layer1.2.conv1.weight": entries["layer1.1.conv1.weight"]}
    file = save(tmp_path / "w.safetensors", deeper)
    with pytest.raises(
        UsageError, match=r"are missing.*; the file is incomplete, or for other"
    ) as error:
        weights.load(file, networks.WideResNet())
    assert "ResNet18(" not in str(error.value)
    file = save(tmp_path / "w.safetensors", entries)
    with pytest.raises(UsageError, match=r"the file holds ResNet18\(num_classes=10\): choose"):
        weights.load(file, networks.WideResNet())
    body = {name: value for name, value in entries.items() if not name.startswith("linear.")}
    file = save(tmp_path / "w.safetensors", body)
    with pytest.raises(
        UsageError, match=r"resembles ResNet18, but lacks 'linear.weight', the weight"
    ):
        weights.load(file)


def test_half_precision_is_computed_in_float32(small, tmp_path):
    half = {name: value.astype(np.float16) for name, value in small.items()}
    loaded = weights.load(save(tmp_path / "w.safetensors", half), SMALL, image_shape=(8, 12, 1))
    assert {leaf.dtype for leaf in jax.tree.leaves(loaded.variables)} == {jnp.dtype("float32")}


OTHER_STD = {"mu": np.array(CIFAR["mean"]), "sigma": np.array((0.2023, 0.1994, 0.201))}
REFUSED = {
    "missing": (
        lambda e: e.pop("bn1.running_var"),
        r"1 of the 39 entries of Wide.*bn1.running_var",
    ),
    "unknown": (
        lambda e: e.update({"fc2.bias": np.ones(1)}),
        r"1 entries do not belong to .*'fc2.bias'",
    ),
    "classes": (
        lambda e: e.update({"fc.weight": np.ones((100, 64)), "fc.bias": np.ones(100)}),
        r"'fc.bias' is \[100\], expected \[10\] .*holds WideResNet\(num_classes=100",
    ),
    "depth": (lambda e: e.update(state_dict(WIDE.clone(depth=16))), "do not belong to .*depth=16"),
    "another network": (
        lambda e: (e.clear(), e.update(state_dict(SMALL, (8, 8, 1)))),
        r"39 of the 39 entries .*the file holds SmallCNN\(num_classes=7\): choose that network",
    ),
    "not finite": (lambda e: e["fc.bias"].fill(np.nan), "'fc.bias' is not finite"),
    "no network": (lambda e: (e.clear(), e.update({"a.weight": np.ones(1)})), "entries of Wide"),
    "std": (lambda e: e.update(OTHER_STD), r"std \[0.2023, 0.1994, 0.201\], expected \[0.2471, "),
    "mean alone": (lambda e: e.update(mu=np.ones(3)), "it has a mean alone; expected both"),
    "optimizer": (lambda e: e.update(epoch=np.ones(1)), "do not belong to .*'epoch'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_the_network_is_refused_in_one_line(name, wide, tmp_path):
    harm, message = REFUSED[name]
    entries = {key: value.copy() for key, value in wide.items()}
    harm(entries)
    file = save(tmp_path / "w.safetensors", entries)
    with pytest.raises(UsageError, match=message) as error:
        weights.load(file, WIDE)
    assert str(error.value).startswith(f"{file}: ") and "\n" not in str(error.value)


def test_a_file_that_does_not_say_how_images_are_normalised_needs_the_network(wide, tmp_path):
    file = save(tmp_path / "w.safetensors", wide)
    with pytest.raises(UsageError, match=r"does not state how WideResNet\(.*pass the network"):
        weights.load(file)
    same(weights.load(file, WIDE), wide)
    normalised = save(tmp_path / "n.safetensors", wide, {"mean": [0.5] * 3, "std": [1] * 3})
    with pytest.raises(UsageError, match=r"mean \[0.5, 0.5, 0.5\], expected \[\]"):
        weights.load(normalised, WIDE.clone(mean=(), std=()))


@pytest.mark.parametrize(
    "name, fields",
    [
        (
            "RN_b_5_b1_01_e8_cw.pth",
            ("PreActResNet18", 5.0, 0.1, "8/255", "margin"),
        ),
        (
            "WRN_b_6_b1_005_e10_cent.safetensors",
            ("WideResNet", 6.0, 0.05, "10/255", "cross_entropy"),
        ),
        ("model_best.pth", None),
    ],
)
def test_the_authors_names_of_files_tell_the_config(name, fields):
    paths = ("classifier.name", "method.beta", "method.beta1", "attack.epsilon", "attack.loss")
    want = dict(zip(paths, fields, strict=True)) | {"method.name": "cat"} if fields else {}
    assert recognition.fields_of_file_name(name) == want


@pytest.mark.slow
def test_a_config_does_not_state_the_normalisation_of_a_file(wide, tmp_path):
    """Unless it is set on purpose: a mean that is taken by default would lower every accuracy."""
    file = save(tmp_path / "theirs.safetensors", wide)
    with pytest.raises(UsageError, match=r"does not state how .*--config.classifier.normalize=Fal"):
        weights.load(file, WIDE, fields=())
    assert weights.load(file, WIDE, fields=["std"]).network == WIDE
    stated = save(tmp_path / "ours.safetensors", wide, {"mean": WIDE.mean, "std": WIDE.std})
    assert weights.load(stated, WIDE, fields=()).network == WIDE
    config = small_runs.config(**{"classifier.name": "PreActResNet18"})
    entries = state_dict(networks.PreActResNet18(num_classes=10), (8, 8, 3))
    plain = save(tmp_path / "plain.safetensors", entries)
    with pytest.raises(
        UsageError, match=r"plain.safetensors: it does not state how PreActResNet18"
    ):
        modes.evaluate_file(config, tmp_path / "new", str(plain))
    assert not (tmp_path / "new").exists()


def test_the_authors_files_normalise_as_cifar_does(wide, tmp_path):
    loaded = weights.load(save(tmp_path / "WRN_b_5_b1_005_e8_cw.safetensors", wide))
    assert loaded.network == WIDE
    hundred = state_dict(WIDE.clone(num_classes=100))
    loaded = weights.load(save(tmp_path / "WRN_b_5_b1_005_e8_cent.safetensors", hundred))
    config = preact_cifar100.get_config("cat_cw").classifier
    for name in ("mean", "std"):
        np.testing.assert_allclose(getattr(loaded.network, name), config[name], rtol=1e-7)
    with pytest.raises(UsageError, match=r"mean \[0.4914.*, expected \[\]"):
        weights.load(tmp_path / "WRN_b_5_b1_005_e8_cw.safetensors", WIDE.clone(mean=(), std=()))


def test_weights_can_be_sent_to_another_process(wide, tmp_path):
    loaded = weights.load(save(tmp_path / "w.safetensors", wide), WIDE)
    sent = pickle.loads(pickle.dumps(loaded))
    assert sent.network == WIDE
    same(sent, wide)


def test_other_images_than_the_weights_were_trained_on_are_refused(small, tmp_path):
    file = save(tmp_path / "w.safetensors", small)
    message = r"'9.weight' is \[100, 384\], expected \[100, 3136\] .* images of \[28, 28, 1\]"
    with pytest.raises(UsageError, match=message):
        weights.load(file, SMALL, image_shape=(28, 28, 1))


def test_a_damaged_file_is_refused_in_one_line(small, tmp_path):
    path = save(tmp_path / "w.safetensors", small, {"network": "SmallCNN"})
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UsageError, match=r"w.* cannot be read \(.*download it again") as error:
        weights.load(path, SMALL, image_shape=(8, 12, 1))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("absent.pth", None, "There is no .*absent.pth"),
        ("w.pth", b"\n <!DOCTYPE html>", "is a web page; expected weights: download it again"),
        ("w.bin", b"1", r"ends in '.bin'; expected one of .safetensors, .pth"),
        ("", None, "is a folder; expected a file of weights"),
    ],
)
def test_what_is_no_file_of_weights_is_refused(name, content, message, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        weights.load(tmp_path / name)


def test_without_pytorch_its_files_are_refused_with_the_remedy(tmp_path, monkeypatch, small):
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "w.pth").write_bytes(b"PK")
    with pytest.raises(UsageError, match=r"w.pth requires PyTorch, .* pip install torch"):
        weights.load(tmp_path / "w.pth")
    with pytest.raises(UsageError, match=r"x.pth, in PyTorch's format, requires PyTorch"):
        save(tmp_path / "x.pth", small)
    assert not (tmp_path / "x.pth").exists()
    monkeypatch.delitem(sys.modules, "cat_jax.weights.robustbench", raising=False)
    with pytest.raises(UsageError, match=r"cat_jax.weights.robustbench requires PyTorch"):
        import cat_jax.weights.robustbench  # noqa: F401


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("wrapping", [None, "model", "net", "model_state_dict", "state_dict"])
def test_files_of_pytorch_may_wrap_a_state_dict_in_several_ways(wrapping, small, tmp_path):
    torch = pytest.importorskip("torch")
    tensors = {name: torch.tensor(value) for name, value in small.items()}
    beside = {"epoch": 3, "optimizer": {"lr": 0.1}}
    torch.save({wrapping: tensors} | beside if wrapping else tensors, tmp_path / "w.pt")
    same(weights.load(tmp_path / "w.pt", SMALL, image_shape=(8, 12, 1)), small)
    coarse = {name: tensor.bfloat16() for name, tensor in tensors.items()}
    torch.save(coarse, tmp_path / "w.pth.tar")
    loaded = weights.load(tmp_path / "w.pth.tar", SMALL, image_shape=(8, 12, 1))
    same(loaded, {name: tensor.float().numpy() for name, tensor in coarse.items()})


@pytest.mark.filterwarnings("ignore")
def test_a_file_of_pytorch_that_runs_code_or_holds_no_weights_is_refused(tmp_path, small):
    torch = pytest.importorskip("torch")

    class Harm:
        def __reduce__(self):
            return (tmp_path.joinpath("harmed").write_text, ("",))

    tensors = {name: torch.tensor(value) for name, value in small.items()}
    for content, message in (
        (Harm(), r"cannot be read .*no Python objects"),
        ({"epoch": 3, "args": "x"}, r"holds 'epoch', 'args'; expected a state dict"),
        (torch.ones(3), "cannot be read"),
        ({"state_dict": tensors}, "it holds classifier; expected mask_net"),
    ):
        torch.save(content, tmp_path / "w.pth")
        with pytest.raises(UsageError, match=message) as error:
            weights.load(tmp_path / "w.pth", part=weights.MASK_NET)
        assert "\n" not in str(error.value)
    assert not (tmp_path / "harmed").exists()
    (tmp_path / "w.pth").write_bytes((tmp_path / "w.pth").read_bytes()[:-99])
    with pytest.raises(UsageError, match=r"cannot be read .*download it again"):
        weights.load(tmp_path / "w.pth")


def test_a_written_file_replaces_what_was_exported_there(small, tmp_path):
    for scale in (1, 2):
        entries = {name: scale * value for name, value in small.items()}
        path = save(tmp_path / "w.safetensors", entries, {"network": "SmallCNN"})
        same(weights.load(path, SMALL, image_shape=(8, 12, 1)), entries)
    assert [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]
